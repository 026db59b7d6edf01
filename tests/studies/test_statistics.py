"""Comparisons of means over seeds, against scipy's, and corrections for being several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from studies.statistics import Spread, holm, paired, spread, welch


def test_welchs_comparison_is_scipys() -> None:
    first, second = Spread((1.0, 2.5, 2.0)), Spread((3.0, 3.1, 2.9, 3.3))
    compared = welch(first, second)
    expected = stats.ttest_ind(first.values, second.values, equal_var=False)
    assert compared is not None
    assert compared.p_value == pytest.approx(expected.pvalue, rel=1e-12)
    assert (compared.low, compared.high) == pytest.approx(tuple(expected.confidence_interval(0.95)), rel=1e-12)
    assert compared.difference == pytest.approx(11 / 6 - 3.075)
    assert welch(Spread((1.0,)), second) is None
    assert welch(Spread((1.0, 1.0)), Spread((1.0, 1.0))) is None


def test_the_paired_comparison_is_scipys() -> None:
    first, second = Spread((1.0, 2.5, 2.0, 4.0)), Spread((3.0, 3.1, 2.9, 4.1))
    compared = paired(first, second)
    expected = stats.ttest_rel(first.values, second.values)
    assert compared is not None
    assert compared.p_value == pytest.approx(expected.pvalue, rel=1e-12)
    assert (compared.low, compared.high) == pytest.approx(tuple(expected.confidence_interval(0.95)), rel=1e-12)
    assert compared.difference == pytest.approx(-0.9)


def test_what_does_not_belong_together_or_does_not_vary_is_not_compared_pairwise() -> None:
    assert paired(Spread((1.0,)), Spread((2.0,))) is None
    assert paired(Spread((1.0, 2.0)), Spread((2.0, 3.0, 4.0))) is None
    assert paired(Spread((0.1, 0.2, 0.7)), Spread((1.1, 1.2, 1.7))) is None  # by rounding alone


def test_networks_that_differ_among_themselves_hide_nothing_from_the_paired_comparison() -> None:
    """Scaling lowers each by about one, networks differ by tens: only pairs show it."""
    before = Spread((10.0, 20.0, 35.0, 50.0))
    after = Spread((9.1, 18.9, 34.2, 48.8))
    together, apart = paired(after, before), welch(after, before)
    assert together is not None
    assert apart is not None
    assert together.p_value < 0.01 < 0.9 < apart.p_value


def test_holms_correction_of_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.7, 0.9]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holms_correction_keeps_the_order_and_lies_between_none_and_bonferronis(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(p <= q <= min(1.0, len(p_values) * p) + 1e-15 for p, q in zip(p_values, corrected, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= 0).all()


def test_holms_correction_holds_its_level() -> None:
    """Of 4,000 worlds with five true nulls, 5 % reject something at the most; 6.1 % is the one-sided 0.1 % limit."""
    worlds = np.random.default_rng(0).uniform(size=(4000, 5))
    assert np.mean([min(holm(world.tolist())) < 0.05 for world in worlds]) < 0.061


def test_numbers_that_are_none_are_left_out() -> None:
    found = spread([0.5, None, float("nan"), 0.7], 100)
    assert found is not None
    assert found.values == pytest.approx((50.0, 70.0))
    assert str(found) == "60.00 ± 14.14"
    assert spread([None]) is None
