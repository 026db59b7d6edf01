from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special
from sklearn.calibration import _sigmoid_calibration

from calibrators import Platt, metrics, softmax


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
