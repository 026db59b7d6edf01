from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from calibrators import Temperature, Vector, metrics


def nll(parameters, logits, labels, weight=None):
    classes = logits.shape[1]
    scores = logits * parameters[:classes] + parameters[classes:]
    losses = special.logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels]
    return np.average(losses, weights=weight)


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("weighted", [False, True])
def test_reaches_the_optimum_of_the_likelihood(classes, weighted, world):
    logits, labels = world(800, classes, 1.7)
    logits = logits * np.linspace(0.5, 1.5, classes) + np.linspace(-1, 3, classes) + 40
    weight = np.random.default_rng(0).uniform(0.1, 3, 800) if weighted else None
    calibrator = Vector().fit(logits, labels, weight)
    start = np.concatenate([np.ones(classes), np.zeros(classes)])
    centred = logits - logits.mean(axis=0)
    least = optimize.minimize(nll, start, (centred, labels, weight), method="BFGS", options={"gtol": 1e-7}).fun
    found = nll(np.concatenate([calibrator.weights_, calibrator.intercepts_]), logits, labels, weight)
    assert found == pytest.approx(least, abs=1e-7)
    assert found <= least + 1e-7


def test_undoes_scales_and_shifts(world):
    logits, labels = world(40_000, 4, 1.0)
    scales, shifts = np.array([0.5, 1.0, 2.0, 1.0]), np.array([1.0, 0.0, -1.0, 0.0])
    calibrator = Vector().fit((logits - shifts) / scales, labels)
    np.testing.assert_allclose(calibrator.weights_, scales, rtol=0.06)
    np.testing.assert_allclose(np.diff(calibrator.intercepts_), np.diff(shifts), atol=0.1)


def test_never_behind_temperature(world):
    for seed in range(5):
        logits, labels = world(300, 5, 2.0, seed=seed)
        scores = [
            metrics.negative_log_likelihood(method().fit(logits, labels).predict_proba(logits), labels)
            for method in (Vector, Temperature)
        ]
        assert scores[0] <= scores[1] + 1e-7


def test_a_missing_class_gets_next_to_nothing(world):
    logits, labels = world(1000, 4, 1.5)
    kept = labels < 3
    calibrator = Vector().fit(logits[kept], labels[kept])
    assert calibrator.predict_proba(logits[kept])[:, 3].mean() < 1e-4


def test_an_impossible_class_stays_so(world):
    logits, labels = world(400, 3, 1.5)
    logits[::5, (labels[0] + 1) % 3] = -np.inf
    logits, labels = (
        logits[np.isfinite(logits[np.arange(400), labels])],
        labels[np.isfinite(logits[np.arange(400), labels])],
    )
    probabilities = Vector().fit(logits, labels).predict_proba(logits)
    np.testing.assert_array_equal(probabilities == 0, np.isneginf(logits))
