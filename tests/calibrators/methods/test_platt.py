from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import optimize, special
from sklearn.calibration import _sigmoid_calibration

from calibrators import CalibrationDataError, Platt, from_dict, inverse, margin_thresholds, metrics, softmax


def margins(logits, k):
    return logits[:, k] - special.logsumexp(np.delete(logits, k, axis=1), axis=1)


def objective(theta, scores, hits, weight=None):
    mass = np.ones(len(scores)) if weight is None else weight
    effective = mass.sum() ** 2 / (mass**2).sum()
    positives = effective * np.average(hits, weights=mass)
    targets = np.where(hits, (positives + 1) / (positives + 2), 1 / (effective - positives + 2))
    u = theta[0] * scores + theta[1]
    return np.average(np.logaddexp(0, u) - targets * u, weights=mass)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_reaches_the_optimum_of_each_curve(classes, weighted, world):
    logits, labels = world(600, classes, 1.8)
    logits[:, 1] += 1.5
    weight = np.random.default_rng(0).uniform(0.1, 2, 600) if weighted else None
    calibrator = Platt().fit(logits, labels, weight)
    for curve, k in enumerate([1] if classes == 2 else range(classes)):
        scores, hits = margins(logits, k), labels == k
        least = optimize.minimize(objective, [1.0, 0.0], (scores, hits, weight), options={"gtol": 1e-9}).fun
        found = objective([calibrator.slopes_[curve], calibrator.intercepts_[curve]], scores, hits, weight)
        assert found == pytest.approx(least, abs=1e-10)


def test_agrees_with_scikit_learn(world):
    logits, labels = world(500, 2, 1.5)
    scores = logits[:, 1] - logits[:, 0]
    slope, intercept = _sigmoid_calibration(scores, labels)
    calibrator = Platt().fit(logits, labels)
    assert calibrator.slopes_[0] == pytest.approx(-slope, rel=1e-3)
    assert calibrator.intercepts_[0] == pytest.approx(-intercept, abs=1e-3)


def test_rows_are_renormalised(world):
    logits, labels = world(500, 4, 1.5)
    calibrator = Platt().fit(logits, labels)
    curves = np.stack(
        [special.expit(calibrator.slopes_[k] * margins(logits, k) + calibrator.intercepts_[k]) for k in range(4)],
        axis=1,
    )
    np.testing.assert_allclose(calibrator.predict_proba(logits), curves / curves.sum(axis=1, keepdims=True), atol=1e-12)


def test_mends_a_shift_that_temperature_cannot(world):
    logits, labels = world(4000, 2, 1.0)
    shifted = logits + np.array([0.0, 3.0])
    calibrated = Platt().fit(shifted, labels).predict_proba(shifted)
    assert (
        metrics.negative_log_likelihood(calibrated, labels)
        < metrics.negative_log_likelihood(softmax(logits), labels) + 1e-3
    )


def test_separable_and_missing_classes_stay_finite(world):
    logits, _ = world(300, 2)
    calibrator = Platt().fit(logits, logits.argmax(axis=1))
    assert np.isfinite(calibrator.slopes_).all()
    only = Platt().fit(logits, np.zeros(300, np.int64))
    assert only.predict_proba(logits)[:, 1].mean() == pytest.approx(1 / 302, rel=0.01)


def test_equal_log_odds_learn_the_share():
    calibrator = Platt().fit(np.zeros((8, 2)), [1, 1, 1, 1, 1, 1, 0, 0])
    assert calibrator.predict_proba([[0.0, 0.0]])[0, 1] == pytest.approx((6 * 7 / 8 + 2 * 1 / 4) / 8)


def test_an_impossible_class_stays_so_and_teaches_nothing(world):
    logits, labels = world(400, 3, 1.5)
    logits[np.arange(400), (labels + 1) % 3] = -np.inf
    probabilities = Platt().fit(logits, labels).predict_proba(logits)
    np.testing.assert_array_equal(probabilities == 0, np.isneginf(logits))


def test_frequencies_count_rows_and_importance_their_effective_number():
    rng = np.random.default_rng(4)
    logits, labels = rng.normal(0, 2, (60, 2)), rng.integers(0, 2, 60)
    counts = rng.integers(1, 5, 60)
    repeated = Platt().fit(np.repeat(logits, counts, axis=0), np.repeat(labels, counts))
    frequency = Platt(weight_kind="frequency").fit(logits, labels, counts)
    importance = Platt().fit(logits, labels, counts)
    np.testing.assert_allclose(frequency.slopes_, repeated.slopes_, rtol=1e-8)
    np.testing.assert_allclose(frequency.intercepts_, repeated.intercepts_, atol=1e-8)
    least = optimize.minimize(
        objective, [1.0, 0.0], (margins(logits, 1), labels == 1, counts.astype(float)), options={"gtol": 1e-9}
    ).x
    np.testing.assert_allclose([importance.slopes_[0], importance.intercepts_[0]], least, atol=1e-6)
    assert abs(importance.slopes_[0] - frequency.slopes_[0]) > 1e-5


# The last two are too many to be kept, and read in chunks.
@pytest.mark.parametrize(("rows", "classes"), [(700, 2), (700, 3), (140_000, 2), (30_000, 10)])
def test_on_the_margin_it_is_a_regression_of_right_answers_on_their_log_odds(classes, rows, world):
    logits, labels = world(rows, classes, 1.8, dtype=np.float32)
    top = logits.argmax(axis=1)
    calibrator = Platt(on="margin").fit(logits, labels)
    wide = logits.astype(np.float64)
    rest = wide.copy()
    rest[np.arange(rows), top] = -np.inf
    scores = wide[np.arange(rows), top] - special.logsumexp(rest, axis=1)
    least = optimize.minimize(objective, [1.0, 0.0], (scores, top == labels), options={"gtol": 1e-9})
    found = calibrator.slopes_[0], calibrator.intercepts_[0]
    assert objective(found, scores, top == labels) <= least.fun + 1e-10
    probabilities = calibrator.predict_proba(wide)
    predicted, confidence = calibrator.top_label(wide, probabilities)
    np.testing.assert_array_equal(predicted, top)
    np.testing.assert_allclose(confidence, special.expit(found[0] * scores + found[1]), rtol=1e-12)
    # The others keep their proportions.
    others = np.where(np.arange(classes) == top[:, None], 0.0, probabilities)
    np.testing.assert_allclose(
        others / others.sum(axis=1, keepdims=True), special.softmax(rest, axis=1), rtol=1e-9, atol=1e-300
    )
    assert calibrator.top_label_only


def test_on_the_margin_extremes_stay_distributions(world):
    logits, labels = world(300, 4, 1.5)
    calibrator = Platt(on="margin").fit(logits, labels)
    for values in (logits * 1e5, logits * 1e300, np.where(np.arange(4) > 1, -np.inf, logits), np.zeros((2, 4))):
        probabilities = calibrator.predict_proba(values)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
        np.testing.assert_array_equal(probabilities[np.isneginf(values)], 0)
    certain = np.array([[-np.inf, 3.0, -np.inf, -np.inf]])
    np.testing.assert_array_equal(calibrator.predict_proba(certain), [[0, 1, 0, 0]])
    far = calibrator.predict_proba([[900.0, 0.0, -1.0, -2.0]])[0]
    assert 0 < far[1] < 1e-200
    assert far[1] / far[2] == pytest.approx(np.e, rel=1e-9)


@pytest.mark.parametrize("on", ["log_odds", "margin"])
@pytest.mark.parametrize("weight_kind", ["importance", "frequency"])
@pytest.mark.parametrize("classes", [2, 3])
def test_documents_of_every_option_are_restored_exactly(on, weight_kind, classes, world):
    logits, labels = world(200, classes)
    calibrator = Platt(on=on, weight_kind=weight_kind).fit(logits, labels, np.arange(1, 201))
    document = json.loads(json.dumps(calibrator.to_dict()))
    restored = from_dict(document)
    assert (restored.on, restored.weight_kind, restored.top_label_only) == (on, weight_kind, on == "margin")
    assert restored.to_dict() == document
    np.testing.assert_array_equal(restored.predict_proba(logits), calibrator.predict_proba(logits))
    for field in set(document) - {"weight_kind"}:
        with pytest.raises(CalibrationDataError):
            from_dict({key: value for key, value in document.items() if key != field})
    for change in ({"weight_kind": "x"}, {"margin_slope": None}, {"slopes": [1.0] * 7}):
        with pytest.raises(CalibrationDataError):
            from_dict({**document, **change})


def test_a_document_of_the_first_form_is_read():
    old = {"method": "platt", "version": 1, "classes": 2, "slopes": [0.5], "intercepts": [1.0]}
    calibrator = from_dict(old)
    assert calibrator.predict_proba([[0.0, 2.0]])[0, 1] == pytest.approx(special.expit(2.0))
    assert calibrator.to_dict() == {**old, "weight_kind": "importance"}


def test_unknown_options_are_refused():
    for options in ({"on": "top_label"}, {"weight_kind": "counts"}):
        with pytest.raises(CalibrationDataError, match="one of"):
            Platt(**options)


def test_on_the_margin_there_is_no_inverse_and_no_threshold(world):
    calibrator = Platt(on="margin").fit(*world(200, 2))
    with pytest.raises(CalibrationDataError):
        inverse(calibrator, [[0.4, 0.6]])
    with pytest.raises(CalibrationDataError):
        margin_thresholds(calibrator, [0.5])
