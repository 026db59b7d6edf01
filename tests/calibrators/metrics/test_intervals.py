from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from calibrators import CalibrationDataError
from calibrators.metrics import paired_interval


def test_paired_equals_a_t_interval():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.1, 1, 40), rng.normal(0, 1, 40)
    interval = paired_interval(first, second, level=0.9)
    expected = stats.ttest_rel(first, second).confidence_interval(0.9)
    assert interval.estimate == pytest.approx((first - second).mean())
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_paired_on_whole_groups_equals_the_groups_means():
    rng = np.random.default_rng(0)
    means = rng.normal(0, 1, 20)
    repeated = paired_interval(np.repeat(means, 5), np.zeros(100), groups=np.repeat(np.arange(20), 5))
    single = paired_interval(means, np.zeros(20))
    assert (repeated.low, repeated.high) == pytest.approx((single.low, single.high))


def test_paired_covers_with_groups_of_any_size():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        sizes = rng.integers(1, 8, 60)
        groups = np.repeat(np.arange(60), sizes)
        difference = 0.3 + np.repeat(rng.normal(0, 1, 60), sizes) + rng.normal(0, 1, len(groups))
        interval = paired_interval(difference, np.zeros(len(groups)), groups=groups)
        hits += interval.low <= 0.3 <= interval.high
    assert 0.93 <= hits / 2000 <= 0.97


def test_paired_rows_of_weight_zero_are_absent():
    full = paired_interval([1.0, 2.0, 9.0], [0.0, 0.5, 0.0], sample_weight=[1.0, 1.0, 0.0], groups=["a", "b", "c"])
    assert full == paired_interval([1.0, 2.0], [0.0, 0.5])


@pytest.mark.parametrize(("first", "second"), [([1.0, np.inf], [0.0, 0.0]), ([1.0, 2.0], [0.0]), ([[1.0]], [[0.0]])])
def test_paired_refuses_what_has_no_mean(first, second):
    with pytest.raises(CalibrationDataError):
        paired_interval(first, second)


def test_paired_frequencies_are_repeated_rows():
    rng = np.random.default_rng(0)
    first, times, groups = rng.normal(0, 1, 60), rng.integers(0, 4, 60), rng.integers(0, 20, 60)
    for names in (None, groups):
        found = paired_interval(first, np.zeros(60), sample_weight=times, groups=names, weight_kind="frequency")
        repeated = np.repeat(first, times)
        expected = paired_interval(
            repeated, np.zeros(len(repeated)), groups=None if names is None else np.repeat(names, times)
        )
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    with pytest.raises(CalibrationDataError, match=r"sample_weight\[1\].*whole number"):
        paired_interval([1.0, 2.0], [0.0, 0.0], sample_weight=[1.0, 1.5], weight_kind="frequency")


def test_one_group_is_not_enough_for_a_pair():
    with pytest.raises(CalibrationDataError, match="groups"):
        paired_interval([1.0, 2.0], [0.0, 0.0], groups=[7, 7])
