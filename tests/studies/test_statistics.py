"""Comparisons of means over seeds, against scipy's, and corrections for being several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from studies.statistics import Spread, detectable, holm, paired, pairs_for, power, sign_flips, spread


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


def test_sign_flips_are_scipys_exact_permutation_test() -> None:
    differences = np.array([0.9, 2.3, -0.4, 1.1, 1.8, 0.2, 0.7])
    expected = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert sign_flips(differences.tolist()) == pytest.approx(expected.pvalue)


def test_the_exact_test_is_shown_where_it_can_reach_five_percent() -> None:
    def flips(count: int) -> float | None:
        compared = paired(Spread(tuple(1.0 + 0.1 * place for place in range(count))), Spread((0.0,) * count))
        assert compared is not None
        return compared.sign_flips

    assert flips(5) is None
    assert flips(6) == 2 / 2**6
    assert flips(20) == 2 / 2**20
    assert flips(21) is None


@pytest.mark.parametrize(
    ("effect", "pairs", "alpha"), [(1.0, 3, 0.05), (0.7, 12, 0.01), (2.0, 6, 0.05), (0.0, 5, 0.05)]
)
def test_power_is_what_simulated_studies_show(effect: float, pairs: int, alpha: float) -> None:
    drawn = np.random.default_rng(0).normal(effect, 1.0, (20_000, pairs))
    found = np.mean(stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < alpha)
    assert power(effect, 1.0, pairs, alpha) == pytest.approx(found, abs=0.012)


def test_power_is_sure_of_an_effect_far_from_zero() -> None:
    assert power(17.0, 0.1, 3, 0.05 / 6) == pytest.approx(1.0, abs=1e-3)


def test_the_seeds_for_a_power_are_the_fewest() -> None:
    needed = pairs_for(1.0, 1.3, 0.01)
    assert needed is not None
    assert power(1.0, 1.3, needed - 1, 0.01) < 0.8 <= power(1.0, 1.3, needed, 0.01)
    assert power(detectable(1.3, needed, 0.01), 1.3, needed, 0.01) == pytest.approx(0.8)
    assert pairs_for(0.01, 1.0) is None


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
