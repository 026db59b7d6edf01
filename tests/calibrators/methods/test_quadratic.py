from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special, stats

from calibrators import CalibrationDataError, Quadratic, metrics
from tests.calibrators.two_classes import logits_of


def parabola(rows, a, b, c, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0.3, 2, rows)
    chance = special.expit(a * scores**2 + b * scores + c)
    return logits_of(scores), (rng.random(rows) < chance).astype(int)


def losses(theta, scores, hits, weight=None):
    u = theta[0] * scores**2 + theta[1] * scores + theta[2]
    return np.average(np.logaddexp(0, u) - hits * u, weights=weight)


@pytest.mark.parametrize("truth", [(0.0, 1.0, 0.0), (0.3, 0.7, -0.5), (-0.2, 1.5, 0.4), (0.0, -1.0, 0.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_reaches_the_maximum_of_the_likelihood(truth, weighted):
    logits, labels = parabola(1500, *truth)
    weight = np.random.default_rng(1).uniform(0.1, 2, 1500) if weighted else None
    probabilities = Quadratic().fit(logits, labels, weight).predict_proba(logits)
    found = metrics.negative_log_likelihood(probabilities, labels, weight)
    least = optimize.minimize(losses, [0.0, 1.0, 0.0], (logits[:, 1], labels, weight), options={"gtol": 1e-9}).fun
    assert found == pytest.approx(least, abs=1e-7)


def test_normal_log_odds_of_unequal_variance_are_exactly_such_a_curve():
    rng = np.random.default_rng(0)
    labels = (rng.random(200_000) < 0.3).astype(int)
    scores = np.where(labels == 1, rng.normal(1.5, 2.0, 200_000), rng.normal(-1.0, 1.0, 200_000))
    calibrator = Quadratic().fit(logits_of(scores), labels)
    grid = np.linspace(-3, 5, 50)
    positive, negative = 0.3 * stats.norm.pdf(grid, 1.5, 2), 0.7 * stats.norm.pdf(grid, -1, 1)
    np.testing.assert_allclose(
        calibrator.predict_proba(logits_of(grid))[:, 1], positive / (positive + negative), atol=0.015
    )


def test_one_curve_for_each_class(world):
    logits, labels = world(800, 4, 1.6)
    calibrator = Quadratic().fit(logits, labels)
    chances = np.empty((800, 4))
    for k in range(4):
        scores = logits[:, k] - special.logsumexp(np.delete(logits, k, axis=1), axis=1)
        best = optimize.minimize(losses, [0.0, 1.0, 0.0], (scores, labels == k), options={"gtol": 1e-9}).x
        chances[:, k] = special.expit(best[0] * scores**2 + best[1] * scores + best[2])
    expected = chances / chances.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(calibrator.predict_proba(logits), expected, atol=1e-4)


def test_small_probabilities_are_exact():
    calibrator = Quadratic().fit(*parabola(1000, 0.0, 1.0, 0.0))
    calibrator.coefficients_[0, 0] = 0.0
    probabilities = calibrator.predict_proba([[0.0, 200.0], [0.0, -200.0]])
    assert 0 < probabilities[0, 0] < 1e-40
    assert 0 < probabilities[1, 1] < 1e-40


def test_a_scale_of_zero_is_refused(world):
    document = Quadratic().fit(*world(100, 2)).to_dict()
    for change in ({"scales": [0.0]}, {"coefficients": [[1.0, 2.0]]}, {"centres": []}):
        with pytest.raises(CalibrationDataError):
            Quadratic.from_dict({**document, **change})
