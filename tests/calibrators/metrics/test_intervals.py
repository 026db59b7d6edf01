"""Coverage is counted in 200 worlds, so that 93–97 % is told from worse within 1.5 percentage points."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import (
    accuracy,
    bootstrap_interval,
    brier_score,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    negative_log_likelihood,
    paired_interval,
    refinement_auroc,
)

WORLDS = 200


def coverage(metric, world, truth_rows=200_000, rows=600, temperature=1.6):
    logits, labels = world(truth_rows, 3, temperature, seed=99)
    truth = metric(softmax(logits), labels)
    hits = 0
    for seed in range(WORLDS):
        logits, labels = world(rows, 3, temperature, seed=seed)
        interval = bootstrap_interval(metric, softmax(logits), labels, resamples=200, seed=seed)
        hits += interval.low <= truth <= interval.high
    return hits / WORLDS


@pytest.mark.parametrize(
    "metric",
    [negative_log_likelihood, brier_score, accuracy, refinement_auroc, partial(debiased_calibration_error, bins=10)],
)
def test_intervals_cover(metric, world):
    assert 0.92 <= coverage(metric, world) <= 0.98


def test_the_debiased_interval_of_a_calibrated_model_is_on_the_safe_side(world):
    hits = 0
    for seed in range(200):
        logits, labels = world(500, 3, 1.0, seed=seed)
        interval = bootstrap_interval(debiased_calibration_error, softmax(logits), labels, resamples=200, seed=seed)
        hits += interval.low <= 0 <= interval.high
    assert hits / 200 >= 0.93


def test_groups_are_drawn_whole():
    # 60 groups of 10 equal rows: an interval that took the rows for independent would be √10 too narrow.
    rng = np.random.default_rng(0)
    hits, naive = 0, 0
    for seed in range(200):
        groups = np.repeat(np.arange(60), 10)
        labels = np.repeat((rng.random(60) > 0.7).astype(int), 10)
        probabilities = np.tile([[0.7, 0.3]], (600, 1))
        clustered = bootstrap_interval(brier_score, probabilities, labels, groups=groups, resamples=200, seed=seed)
        independent = bootstrap_interval(brier_score, probabilities, labels, resamples=200, seed=seed)
        hits += clustered.low <= 0.42 <= clustered.high
        naive += independent.low <= 0.42 <= independent.high
    assert 0.91 <= hits / 200 <= 0.98
    assert naive / 200 < 0.6


def test_plug_in_errors_are_refused(world):
    logits, labels = world(100, 3)
    for metric in (
        expected_calibration_error,
        classwise_calibration_error,
        partial(expected_calibration_error, bins=5),
    ):
        with pytest.raises(CalibrationDataError, match="calibration_test"):
            bootstrap_interval(metric, softmax(logits), labels)
    with pytest.raises(CalibrationDataError, match="Unknown metric"):
        bootstrap_interval(lambda p, y, sample_weight: 0.0, softmax(logits), labels)


def test_an_infinite_loss_has_no_interval():
    with pytest.raises(CalibrationDataError, match="inf"):
        bootstrap_interval(negative_log_likelihood, [[1.0, 0.0]] * 3, [0, 1, 0])


def test_refinement_of_hardly_any_errors_has_no_interval():
    confidence = np.linspace(0.6, 0.99, 50)
    with pytest.raises(CalibrationDataError, match="undefined"):
        bootstrap_interval(refinement_auroc, np.stack([confidence, 1 - confidence], axis=1), [1] + [0] * 49)


def test_one_group_is_not_enough():
    with pytest.raises(CalibrationDataError, match="groups"):
        bootstrap_interval(brier_score, [[0.5, 0.5]] * 3, [0, 1, 0], groups=["a", "a", "a"])
    with pytest.raises(CalibrationDataError, match="groups"):
        paired_interval([1.0, 2.0], [0.0, 0.0], groups=[7, 7])


def test_level_seed_and_estimate(world):
    logits, labels = world(300, 3)
    probabilities = softmax(logits)
    wide = bootstrap_interval(brier_score, probabilities, labels, level=0.99)
    narrow = bootstrap_interval(brier_score, probabilities, labels, level=0.8)
    assert wide.low < narrow.low < narrow.estimate == brier_score(probabilities, labels) < narrow.high < wide.high
    assert bootstrap_interval(brier_score, probabilities, labels, level=0.8) == narrow
    for level in (0, 1, -0.5):
        with pytest.raises(CalibrationDataError, match="level"):
            bootstrap_interval(brier_score, probabilities, labels, level=level)


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
