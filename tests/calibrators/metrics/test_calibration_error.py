from __future__ import annotations

import math

import calibration
import calibration.utils
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import (
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    reliability_curve,
)
from calibrators.metrics.calibration_error import mean_distance


def brute_force(confidence, correct, edges, weight, norm):
    total, error = weight.sum(), 0.0
    for b in range(len(edges) - 1):
        inside = (confidence <= edges[b + 1]) & ((confidence > edges[b]) | (b == 0))
        if inside.any():
            gap = abs(
                np.average(confidence[inside], weights=weight[inside])
                - np.average(correct[inside], weights=weight[inside])
            )
            share = weight[inside].sum() / total
            error = max(error, gap) if norm == "max" else error + share * gap**norm
    return math.sqrt(error) if norm == 2 else error


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 80),
    classes=st.integers(2, 5),
    bins=st.integers(1, 20),
    norm=st.sampled_from([1, 2, "max"]),
    coarse=st.booleans(),
)
def test_plug_in_errors_by_brute_force(seed, rows, classes, bins, norm, coarse):
    rng = np.random.default_rng(seed)
    probabilities = softmax(rng.normal(0, 2, (rows, classes)))
    if coarse and classes == 2:
        first = np.round(probabilities[:, 0], 1)  # points on edges
        probabilities = np.stack([first, 1 - first], axis=1)
    labels = rng.integers(0, classes, rows)
    weight = rng.integers(1, 4, rows).astype(float)
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    for weights in (None, weight):
        expected = brute_force(
            confidence, correct, np.arange(bins + 1) / bins, np.ones(rows) if weights is None else weights, norm
        )
        found = expected_calibration_error(probabilities, labels, bins, norm=norm, sample_weight=weights)
        assert found == pytest.approx(expected, abs=1e-12)
    counts = weight.astype(int)
    repeated = (np.repeat(probabilities, counts, axis=0), np.repeat(labels, counts))
    for scheme in ("width", "mass"):
        for metric in (expected_calibration_error, classwise_calibration_error):
            weighted = metric(probabilities, labels, bins, scheme, norm, weight)
            assert weighted == pytest.approx(metric(*repeated, bins, scheme, norm), abs=1e-12)
            assert -1e-12 <= weighted <= 1 + 1e-12


def test_the_norms_are_ordered(world):
    logits, labels = world(500, 4, 2.0)
    one, two, most = (expected_calibration_error(softmax(logits), labels, norm=norm) for norm in (1, 2, "max"))
    assert one <= two <= most


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bins", [1, 3, 5, 10, 15, 20])
def test_points_on_edges_belong_to_the_bin_below(bins, dtype):
    # i / bins lies in bin i − 1, and the next number above it in bin i, in the type's own rounding; 0 in the first bin.
    edges = (np.arange(bins + 1) / bins).astype(dtype)
    for repeats in (1, 300):  # few rows are searched for, many are computed
        stated = np.repeat(np.concatenate([edges, np.nextafter(edges[:-1], dtype(1))]), repeats)
        wanted = np.repeat(np.concatenate([[0], np.arange(bins), np.arange(bins)]), repeats)
        probabilities = np.stack([stated, 1 - stated], axis=1)
        zeros = np.zeros(len(stated), int)
        curve = reliability_curve(probabilities, zeros, bins, predicted=zeros)
        np.testing.assert_array_equal(curve.count, np.bincount(wanted))
        np.testing.assert_array_equal(curve.upper, edges[1:].astype(np.float64))
        expected = np.bincount(wanted, stated.astype(np.float64)) / np.bincount(wanted)
        np.testing.assert_allclose(curve.confidence, expected, rtol=1e-12)


def test_classwise_by_brute_force(world):
    logits, labels = world(300, 3, 2.0)
    probabilities = softmax(logits)
    expected = np.mean(
        [brute_force(probabilities[:, k], labels == k, np.arange(11) / 10, np.ones(300), 1) for k in range(3)]
    )
    assert classwise_calibration_error(probabilities, labels, bins=10) == pytest.approx(expected, abs=1e-12)


def test_classwise_with_more_bins_than_rows():
    # Each row alone in its bin: the error is the mean distance to the outcome.
    first = np.random.default_rng(0).random(40)
    probabilities, labels = np.stack([first, 1 - first], axis=1), np.arange(40) % 2
    found = classwise_calibration_error(probabilities, labels, bins=600_000)
    assert found == pytest.approx(np.abs(first - (labels == 0)).mean(), abs=1e-12)


def test_debiased_by_hand():
    # One bin, n = 4, mean confidence 0.75, accuracy 0.5: (0.25)² − 0.5 · 0.5 / 3.
    probabilities = np.array([[0.7, 0.3], [0.8, 0.2], [0.7, 0.3], [0.8, 0.2]])
    found = debiased_calibration_error(probabilities, [0, 0, 1, 1], bins=1)
    assert found == pytest.approx(0.0625 - 0.25 / 3, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
def test_debiased_agrees_with_the_authors_package(classes, world):
    # Its bins: (lo, hi] of equal width, as ours; of equal mass they end half-way between two scores, which puts the
    # same rows together where N is a multiple of the number of bins and no scores are equal. It takes the square root
    # of what is above zero, and resamples for norm 1, here 1,000 times.
    logits, labels = world(1_500, classes, 2.0)
    probabilities = softmax(logits)
    for scheme, theirs in (
        ("width", calibration.utils.get_equal_prob_bins),
        ("mass", calibration.utils.get_equal_bins),
    ):
        squared = debiased_calibration_error(probabilities, labels, 10, scheme)
        expected = calibration.lower_bound_scaling_top_ce(
            probabilities, labels, p=2, debias=True, num_bins=10, binning_scheme=theirs
        )
        assert math.sqrt(squared) == pytest.approx(expected, rel=1e-9)
    logits, labels = world(1_500, classes, 1.0)
    probabilities = softmax(logits)
    np.random.seed(0)  # noqa: NPY002  theirs
    expected = calibration.lower_bound_scaling_top_ce(
        probabilities, labels, p=1, debias=True, num_bins=10, binning_scheme=calibration.utils.get_equal_bins
    )
    found = debiased_calibration_error(probabilities, labels, 10, "mass", norm=1)
    # Of each bin they take variance / n where ours has n − 1, and a mean of 1,000 draws where ours is exact.
    assert found == pytest.approx(expected, abs=1e-3)
    assert expected_calibration_error(probabilities, labels, 10, "mass") - found > 5e-3


def test_the_mean_distance_by_integration():
    centre, deviation = np.array([-0.3, 0.0, 0.02, 0.4]), np.array([0.1, 0.2, 0.05, 1e-3])
    expected = [
        integrate.quad(lambda z, m=m, s=s: abs(m + s * z) * stats.norm.pdf(z), -10, 10, points=[-m / s], limit=200)[0]
        if abs(m / s) < 10
        else abs(m)
        for m, s in zip(centre, deviation, strict=True)
    ]
    np.testing.assert_allclose(mean_distance(centre, deviation), expected, rtol=1e-8)
    assert mean_distance(np.array([-0.5]), np.zeros(1)) == [0.5]


def test_norm_one_keeps_the_stated_share_of_the_bias():
    # A calibrated model: the truth is zero, the plug-in error is all bias; 2 − √2 of it stays.
    rng = np.random.default_rng(0)
    errors = []
    for row in rng.uniform(0.5, 1.0, (3_000, 500)):
        rows = np.stack([row, 1 - row], axis=1), (rng.random(500) > row).astype(int)
        errors.append((debiased_calibration_error(*rows, 5, norm=1), expected_calibration_error(*rows, 5)))
    debiased, plug_in = np.mean(errors, axis=0)
    assert debiased / plug_in == pytest.approx(2 - math.sqrt(2), abs=0.03)


def test_debiased_is_unbiased_where_the_plug_in_is_not():
    # 400 rows at confidence 0.7 that are right 0.65 of the time: the truth is 0.0025.
    rng = np.random.default_rng(0)
    probabilities = np.tile([[0.7, 0.3]], (400, 1))
    draws = [(rng.random(400) > 0.65).astype(int) for _ in range(2000)]
    debiased = np.array([debiased_calibration_error(probabilities, labels) for labels in draws])
    plug_in = np.array([expected_calibration_error(probabilities, labels, norm=2) ** 2 for labels in draws])
    noise = debiased.std() / math.sqrt(len(draws))
    assert abs(debiased.mean() - 0.0025) < 3 * noise
    assert plug_in.mean() - 0.0025 > 5 * noise


def test_predicted_labels_of_a_top_label_method():
    probabilities = np.array([[0.4, 0.35, 0.25]] * 4)
    found = expected_calibration_error(probabilities, [1, 1, 0, 2], predicted=[1, 1, 1, 1])
    assert found == pytest.approx(abs(0.35 - 0.5))
    with pytest.raises(CalibrationDataError, match=r"predicted\[2\]"):
        expected_calibration_error(probabilities, [1, 1, 0, 2], predicted=[1, 1, 3, 1])


def test_column_labels_are_refused_not_broadcast():
    with pytest.raises(CalibrationDataError, match="shape"):
        expected_calibration_error([[0.5, 0.5]] * 3, [[0], [1], [0]])


@pytest.mark.parametrize(
    ("probabilities", "where"),
    [
        ([[0.5, 0.5], [0.7, 0.7]], r"probabilities\[1\]"),
        ([[0.5, 0.5], [-0.1, 1.1]], r"probabilities\[1, 0\]"),
        ([[0.5, 0.5], [np.nan, 1.0]], r"probabilities\[1, 0\]"),
        ([[0.5, 0.5], [np.inf, -np.inf]], r"probabilities\[1, 0\]"),
    ],
)
def test_what_is_no_distribution_is_refused(probabilities, where):
    for metric in (expected_calibration_error, classwise_calibration_error, debiased_calibration_error):
        with pytest.raises(CalibrationDataError, match=where):
            metric(probabilities, [0, 1])


def test_debiased_norms_are_one_and_two():
    with pytest.raises(CalibrationDataError, match="norm"):
        debiased_calibration_error([[0.5, 0.5]], [0], norm="max")


@pytest.mark.parametrize("options", [{"bins": 0}, {"scheme": "depth"}, {"norm": 3}, {"norm": True}])
def test_unknown_options_are_refused(options):
    with pytest.raises(CalibrationDataError, match=next(iter(options))):
        expected_calibration_error([[0.5, 0.5]], [0], **options)


def test_one_row_and_a_thousand_classes(world):
    assert expected_calibration_error([[0.25, 0.75]], [1]) == 0.25
    assert debiased_calibration_error([[0.25, 0.75]], [1]) == 0.0  # one row says nothing about its noise
    logits, labels = world(200, 1000, dtype=np.float32)
    assert 0 <= expected_calibration_error(softmax(logits), labels) <= 1
    assert 0 <= classwise_calibration_error(softmax(logits), labels) <= 0.01


def test_debiased_error_of_a_calibrated_model_is_zero_on_average_under_heavy_weights() -> None:
    """Kish's number of rows is a fraction of theirs: 3,000 worlds of 400 rows, within four standard errors."""
    rng = np.random.default_rng(0)
    estimates = []
    for _ in range(3000):
        confidence, weight = rng.uniform(0.5, 1, 400), rng.exponential(1, 400) ** 2
        labels = (rng.random(400) >= confidence).astype(np.int64)
        probabilities = np.stack([confidence, 1 - confidence], axis=1)
        estimates.append(debiased_calibration_error(probabilities, labels, sample_weight=weight))
    assert abs(np.mean(estimates)) < 4 * np.std(estimates) / len(estimates) ** 0.5
