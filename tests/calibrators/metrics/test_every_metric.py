"""What holds for every metric: what weights mean, and that extreme input gives a number or says why not."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest

from calibrators import CalibrationDataError, metrics, softmax

# A point estimate: integer importance weights of any scale equal repeated rows.
ESTIMATES = {
    "accuracy": metrics.accuracy,
    "area_under_risk_coverage": metrics.area_under_risk_coverage,
    "brier_decomposition": metrics.brier_decomposition,
    "brier_score": metrics.brier_score,
    "classwise_calibration_error": metrics.classwise_calibration_error,
    "corp_decomposition": metrics.corp_decomposition,
    "corp_decomposition, log": partial(metrics.corp_decomposition, score="log", positive=1),
    "ece_decomposition": metrics.ece_decomposition,
    "excess_area_under_risk_coverage": metrics.excess_area_under_risk_coverage,
    "expected_calibration_error": metrics.expected_calibration_error,
    "expected_calibration_error, mass": partial(metrics.expected_calibration_error, scheme="mass"),
    "expected_calibration_error, class 1": partial(metrics.expected_calibration_error, positive=1),
    "kolmogorov_smirnov_error": metrics.kolmogorov_smirnov_error,
    "negative_log_likelihood": metrics.negative_log_likelihood,
    "overconfidence_error": metrics.overconfidence_error,
    "refinement_aupr": metrics.refinement_aupr,
    "refinement_auroc": metrics.refinement_auroc,
    "smooth_calibration_error": metrics.smooth_calibration_error,
    "total_variation_calibration_error": metrics.total_variation_calibration_error,
}
# These count rows; frequencies equal repeated rows, importance weights of any scale equal each other.
COUNTS = {
    "calibration_slope_intercept": metrics.calibration_slope_intercept,
    "debiased_calibration_error": metrics.debiased_calibration_error,
    "debiased_calibration_error, 1": partial(metrics.debiased_calibration_error, norm=1),
    "debiased_calibration_error, class 1": partial(metrics.debiased_calibration_error, positive=1),
    "debiased interval": partial(metrics.bootstrap_interval, metrics.debiased_calibration_error),
    "spiegelhalter_test": metrics.spiegelhalter_test,
}
# These draw: two runs agree up to the noise of drawing.
DRAWS = {
    "calibration_test": partial(metrics.calibration_test, resamples=1_500),
    "kernel_calibration_test": partial(metrics.kernel_calibration_test, resamples=400),
    "corp_reliability": partial(metrics.corp_reliability, resamples=1_500),
    "bootstrap_interval": partial(metrics.bootstrap_interval, metrics.refinement_auroc, resamples=1_500),
}
# Their points and counts are those of the rows as given.
CURVES = {
    "precision_recall_curve": metrics.precision_recall_curve,
    "reliability_curve": metrics.reliability_curve,
}
EVERY = {**ESTIMATES, **COUNTS, **DRAWS, **CURVES}
# Where two runs draw the same, or only their shape counts, few draws say as much.
FEW_DRAWS = {name: partial(one, resamples=100) if name in DRAWS else one for name, one in EVERY.items()}


def numbers(result):
    """All that a metric says, as one array."""
    if not dataclasses.is_dataclass(result):
        return np.atleast_1d(result)
    return np.concatenate([np.atleast_1d(getattr(result, field.name)) for field in dataclasses.fields(result)])


@pytest.fixture(scope="module")
def rows():
    """Probabilities of coarse steps, some on edges of bins, labels, and whole weights with zeros among them."""
    rng = np.random.default_rng(3)
    probabilities = rng.multinomial(20, [0.5, 0.3, 0.2], 240) / 20
    probabilities = (probabilities + 0.05) / 1.15
    labels = (rng.random((240, 1)) > np.cumsum(probabilities, axis=1)[:, :-1]).sum(axis=1)
    return probabilities, labels, rng.integers(0, 4, 240)


def test_every_metric_is_listed():
    named = {getattr(found, "func", found) for found in EVERY.values()}
    functions = {getattr(metrics, name) for name in metrics.__all__ if name.islower()}
    assert functions - named == {metrics.log_losses, metrics.squared_errors, metrics.paired_interval}


@pytest.mark.parametrize("name", EVERY)
def test_rows_of_weight_zero_are_absent(name, rows):
    probabilities, labels, weight = rows
    kept = weight > 0
    found = FEW_DRAWS[name](probabilities, labels, sample_weight=weight)
    expected = FEW_DRAWS[name](probabilities[kept], labels[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(numbers(found), numbers(expected), atol=1e-12)


@pytest.mark.parametrize("name", [*ESTIMATES, *COUNTS])
@pytest.mark.parametrize("scale", [2.0**-40, 0.01, 1e6])
def test_the_scale_of_importance_weights_means_nothing(name, scale, rows):
    probabilities, labels, weight = rows
    for one, other in ((weight, weight), (np.ones(240), None)):
        found = EVERY[name](probabilities, labels, sample_weight=one * scale)
        expected = EVERY[name](probabilities, labels, sample_weight=other)
        np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_of_whole_weights_are_those_of_repeated_rows(name, rows):
    probabilities, labels, weight = rows
    found = ESTIMATES[name](probabilities, labels, sample_weight=weight)
    expected = ESTIMATES[name](np.repeat(probabilities, weight, axis=0), np.repeat(labels, weight))
    np.testing.assert_allclose(numbers(found), numbers(expected), atol=1e-9)


@pytest.mark.parametrize("name", [*COUNTS, *DRAWS])
def test_frequencies_are_repeated_rows(name, rows):
    probabilities, labels, weight = rows
    found = EVERY[name](probabilities, labels, sample_weight=weight, weight_kind="frequency")
    expected = EVERY[name](np.repeat(probabilities, weight, axis=0), np.repeat(labels, weight))
    tolerance = {"atol": 0.05} if name in DRAWS else {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(numbers(found), numbers(expected), **tolerance)
    with pytest.raises(CalibrationDataError, match="whole number"):
        EVERY[name](probabilities, labels, sample_weight=weight + 0.5, weight_kind="frequency")
    with pytest.raises(CalibrationDataError, match="weight_kind"):
        EVERY[name](probabilities, labels, sample_weight=weight, weight_kind="analytic")


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_layouts_and_memory_maps_give_one_answer(name, dtype, world, tmp_path):
    logits, labels = world(200, 4, 1.5)
    probabilities = softmax(logits).astype(dtype)
    expected = numbers(FEW_DRAWS[name](probabilities, labels))
    np.save(tmp_path / "p.npy", probabilities)
    wide = np.zeros((400, 8), dtype)
    wide[::2, 1::2] = probabilities
    for other in (np.load(tmp_path / "p.npy", mmap_mode="r"), np.asfortranarray(probabilities), wide[::2, 1::2]):
        # Sums over another layout may differ in their last bits.
        np.testing.assert_allclose(numbers(FEW_DRAWS[name](other, labels)), expected, rtol=1e-11)


@pytest.mark.parametrize("name", [*ESTIMATES, *COUNTS])
def test_coarser_types_give_nearly_the_same(name, world):
    logits, labels = world(600, 4, 1.5)
    exact = numbers(EVERY[name](softmax(logits), labels))
    for dtype, tolerance in ((np.float32, 1e-4), (np.float16, 0.05)):
        found = numbers(EVERY[name](softmax(logits).astype(dtype), labels))
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance)


def said_or_finite(function, *arguments):
    """Whether the metric gave finite numbers; False where it said why there are none. NaN and warnings are errors."""
    try:
        found = numbers(function(*arguments))
    except CalibrationDataError:
        return False
    assert not np.isnan(found).any()
    return bool(np.isfinite(found).all())


# What one row, or a world of certain and right answers, leaves undefined; each says so.
NEEDS_BOTH = {
    "bootstrap_interval",
    "calibration_slope_intercept",
    "ece_decomposition",
    "refinement_aupr",
    "refinement_auroc",
}


@pytest.mark.parametrize("name", EVERY)
def test_one_row(name):
    assert said_or_finite(FEW_DRAWS[name], [[0.25, 0.75]], [1]) == (
        name not in {*NEEDS_BOTH, "debiased interval", "kernel_calibration_test"}
    )


@pytest.mark.parametrize("name", EVERY)
def test_probabilities_of_exactly_zero_and_one(name):
    probabilities = np.repeat([[1.0, 0.0], [0.0, 1.0]], 30, axis=0)
    labels = np.repeat([0, 1], 30)
    assert said_or_finite(FEW_DRAWS[name], probabilities, labels) == (name not in {*NEEDS_BOTH, "spiegelhalter_test"})
    labels[:5] = 1  # five of them wrong
    infinite = {
        "calibration_slope_intercept",
        "corp_decomposition, log",
        "negative_log_likelihood",
        "spiegelhalter_test",
    }
    assert said_or_finite(FEW_DRAWS[name], probabilities, labels) == (name not in infinite)


@pytest.mark.parametrize("name", EVERY)
def test_a_class_that_the_labels_lack(name, world):
    logits, labels = world(500, 4, 1.5)
    assert said_or_finite(FEW_DRAWS[name], softmax(logits), np.minimum(labels, 2))


@pytest.mark.parametrize("name", EVERY)
def test_a_thousand_classes(name, world):
    logits, labels = world(400, 1_000, dtype=np.float32)
    assert said_or_finite(FEW_DRAWS[name], softmax(logits), labels)
