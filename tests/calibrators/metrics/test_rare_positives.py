"""Metrics of one class's probability: where it is rare, the predicted label hardly sees it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from calibrators import CalibrationDataError, metrics, reliability_diagram

POSITIVE = {
    "area of the ROC": partial(metrics.bootstrap_interval, metrics.refinement_auroc, resamples=50),
    "calibration_slope_intercept": metrics.calibration_slope_intercept,
    "calibration_test": partial(metrics.calibration_test, resamples=50),
    "corp_decomposition": metrics.corp_decomposition,
    "corp_reliability": partial(metrics.corp_reliability, resamples=20),
    "debiased_calibration_error": metrics.debiased_calibration_error,
    "expected_calibration_error": metrics.expected_calibration_error,
    "kolmogorov_smirnov_error": metrics.kolmogorov_smirnov_error,
    "precision_recall_curve": metrics.precision_recall_curve,
    "refinement_aupr": metrics.refinement_aupr,
    "refinement_auroc": metrics.refinement_auroc,
    "reliability_curve": metrics.reliability_curve,
    "smooth_calibration_error": metrics.smooth_calibration_error,
}


def asked(name, positive):
    """The metric of this class."""
    metric = POSITIVE[name]
    if getattr(metric, "func", None) is metrics.bootstrap_interval:
        return partial(metric.func, partial(*metric.args, positive=positive), **metric.keywords)
    return partial(metric, positive=positive)


@pytest.fixture(scope="module")
def rare():
    """Probabilities (2,000, 3) of which class 2 has 2 % on average, and labels of which it has twice as many."""
    rng = np.random.default_rng(0)
    chance = rng.beta(0.5, 24.5, 2_000)
    first = (1 - chance) * rng.random(2_000)
    probabilities = np.stack([first, 1 - chance - first, chance], axis=1)
    labels = np.where(rng.random(2_000) < 2 * chance, 2, (rng.random(2_000) * (1 - chance) > first).astype(int))
    return probabilities, labels


def test_by_hand():
    probabilities = np.array([[0.95, 0.05], [0.95, 0.05], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]])
    labels = [0, 1, 0, 1, 1]
    # Five bins: {0.05, 0.05, 0.1} with one event in three, {0.4} with one, {0.6} with one.
    gaps, share = np.array([0.2 / 3 - 1 / 3, 0.4 - 1, 0.6 - 1]), np.array([3, 1, 1]) / 5
    error = partial(metrics.expected_calibration_error, probabilities, labels, 5, positive=1)
    assert error() == pytest.approx(share @ np.abs(gaps), abs=1e-15)
    assert error(norm=2) == pytest.approx(np.sqrt(share @ gaps**2), abs=1e-15)
    assert error(norm="max") == pytest.approx(0.6, abs=1e-15)
    curve = metrics.reliability_curve(probabilities, labels, 5, positive=1)
    np.testing.assert_allclose(curve.confidence, [0.2 / 3, 0.4, 0.6])
    np.testing.assert_allclose(curve.accuracy, [1 / 3, 1, 1])
    # The bins of one row are left out; the other's accuracy has a variance of (1/3 · 2/3) / 2.
    debiased = metrics.debiased_calibration_error(probabilities, labels, 5, positive=1)
    assert debiased == pytest.approx(0.6 * (gaps[0] ** 2 - 1 / 9), abs=1e-15)


def test_the_sum_over_classes_is_the_error_class_by_class(rare):
    errors = [metrics.expected_calibration_error(*rare, positive=k) for k in range(3)]
    assert np.mean(errors) == pytest.approx(metrics.classwise_calibration_error(*rare), abs=1e-15)


@pytest.mark.parametrize("name", POSITIVE)
def test_a_class_is_a_label_that_is_always_predicted(name, rare):
    # Two ways to one number; the second one is what `predicted` means.
    always = partial(POSITIVE[name], predicted=np.full(2_000, 2))
    if name == "area of the ROC":
        always = partial(metrics.bootstrap_interval, partial(metrics.refinement_auroc, predicted=np.full(2_000, 2)))
        always = partial(always, resamples=50)
    found, expected = asked(name, 2)(*rare), always(*rare)
    for field in getattr(type(found), "__dataclass_fields__", {"real": None}):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_the_figures_of_the_diagram_are_to_be_had(scheme, rare):
    test = metrics.calibration_test(*rare, scheme=scheme, positive=2)
    assert test.error == metrics.expected_calibration_error(*rare, scheme=scheme, positive=2)
    note = f"ECE {test.error:.3f}   if calibrated: mean {test.null_mean:.3f}, 95 % below {test.null_quantile:.3f}"
    figure = reliability_diagram(*rare, scheme=scheme, positive=2)
    assert figure.axes[0].get_title(loc="left") == note


def test_what_the_predicted_label_hides_is_found(rare):
    probabilities, labels = rare
    two = np.stack([1 - probabilities[:, 2], probabilities[:, 2]], axis=1)
    events = (labels == 2).astype(int)
    assert metrics.calibration_test(two, events, positive=1).p_value < 0.002
    assert metrics.spiegelhalter_test(two, events, positive=1).p_value < 1e-6
    low = metrics.bootstrap_interval(partial(metrics.debiased_calibration_error, positive=1), two, events).low
    assert low > 0


def test_a_calibrated_rare_class_is_rejected_as_often_as_the_level_says():
    # 500 rows, ten events on average; p-values of 99 draws are uniform on hundredths where errors do not tie.
    rng, values = np.random.default_rng(1), []
    chance = rng.beta(0.5, 24.5, 500)
    stated = np.stack([0.3 * (1 - chance), 0.7 * (1 - chance), chance], axis=1)
    for seed in range(1_500):
        labels = np.where(rng.random(500) < chance, 2, rng.integers(0, 2, 500))
        test = metrics.calibration_test(stated, labels, 10, "mass", positive=2, resamples=99, seed=seed)
        values.append(test.p_value)
    for level in (0.01, 0.05, 0.2, 0.5):
        error = np.sqrt(level * (1 - level) / 1_500)
        assert np.mean(np.array(values) <= level + 1e-9) == pytest.approx(level, abs=3.5 * error)
    assert stats.kstest(np.array(values) - rng.uniform(0, 0.01, 1_500), "uniform").pvalue > 0.001


@pytest.mark.parametrize("weighted", [False, True])
def test_areas_of_a_class_agree_with_scikit_learn(weighted, rare):
    probabilities, labels = rare
    weight = np.random.default_rng(0).uniform(0.1, 2, 2_000) if weighted else None
    event, score = labels == 2, probabilities[:, 2]
    found = metrics.refinement_auroc(probabilities, labels, weight, positive=2)
    assert found == pytest.approx(roc_auc_score(event, score, sample_weight=weight), abs=1e-12)
    found = metrics.refinement_aupr(probabilities, labels, weight, positive=2)
    assert found == pytest.approx(average_precision_score(event, score, sample_weight=weight), abs=1e-12)


def test_the_area_of_a_class_has_an_interval_that_covers():
    # Uniform scores of the others and a density of 2 s for the class: the area is 2/3.
    rng, hits = np.random.default_rng(0), 0
    labels = np.repeat([1, 0], [100, 400])
    metric = partial(metrics.refinement_auroc, positive=1)
    for seed in range(300):
        score = np.concatenate([np.sqrt(rng.random(100)), rng.random(400)])
        interval = metrics.bootstrap_interval(
            metric, np.stack([1 - score, score], axis=1), labels, resamples=200, seed=seed
        )
        hits += interval.low <= 2 / 3 <= interval.high
    assert 0.92 <= hits / 300 <= 0.98  # of 0.95, with a standard error of 0.013


def test_spiegelhalter_of_a_class_is_the_formula_of_1986(rare):
    probabilities, labels = rare
    stated, event = probabilities[:, 2], labels == 2
    excess = np.sum((event - stated) * (1 - 2 * stated))
    statistic = excess / np.sqrt(np.sum((1 - 2 * stated) ** 2 * stated * (1 - stated)))
    found = metrics.spiegelhalter_test(probabilities, labels, positive=2)
    assert found.statistic == pytest.approx(statistic, rel=1e-12)
    two = np.stack([1 - stated, stated], axis=1)
    assert metrics.spiegelhalter_test(two, event.astype(int)).statistic == pytest.approx(statistic, rel=1e-12)
    times = np.random.default_rng(0).integers(0, 4, 2_000)
    for kind, rows in (("frequency", np.repeat(np.arange(2_000), times)), ("importance", np.flatnonzero(times))):
        weight = None if kind == "frequency" else times[rows]
        expected = metrics.spiegelhalter_test(probabilities[rows], labels[rows], weight, positive=2)
        result = metrics.spiegelhalter_test(probabilities, labels, times, positive=2, weight_kind=kind)
        assert result.statistic == pytest.approx(expected.statistic, rel=1e-12)


@pytest.mark.parametrize("name", [*POSITIVE, "spiegelhalter_test"])
def test_a_class_that_is_none_is_refused_and_one_beside_predicted_labels(name, rare):
    metric = partial(asked, name) if name in POSITIVE else lambda k: partial(metrics.spiegelhalter_test, positive=k)
    for positive in (3, -1, 1.0):
        with pytest.raises(CalibrationDataError, match="positive"):
            metric(positive)(*rare)
    if name in POSITIVE and name != "area of the ROC":
        with pytest.raises(CalibrationDataError, match="together with predicted"):
            metric(2)(*rare, predicted=rare[0].argmax(axis=1))
    if name == "area of the ROC":
        both = partial(metrics.refinement_auroc, positive=2, predicted=rare[0].argmax(axis=1))
        with pytest.raises(CalibrationDataError, match="together with predicted"):
            metrics.bootstrap_interval(both, *rare)
