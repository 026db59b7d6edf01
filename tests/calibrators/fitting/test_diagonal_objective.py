"""Vector and structured vector scaling of so many classes that no Hessian is stored."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from calibrators import StructuredVector, Vector

CLASSES = 140


def penalised(features, labels, weight, ridge, strength):
    """Mean NLL + ½ ridge (|w − 1|² + |b|²) + strength (|w − 1|² + |b|²), and its gradient."""
    share = np.full(len(labels), 1 / len(labels)) if weight is None else weight / weight.sum()
    own = np.eye(CLASSES)[labels]

    def objective(theta):
        w, b = theta[:CLASSES], theta[CLASSES:]
        scores = features * w + b
        scores -= scores.max(axis=1, keepdims=True)
        away = np.concatenate([w - 1, b])
        chances = np.exp(scores)
        total = chances.sum(axis=1)
        losses = np.log(total) - scores[np.arange(len(labels)), labels]
        residuals = (chances / total[:, None] - own) * share[:, None]
        slope = np.concatenate([np.einsum("ij,ij->j", residuals, features), residuals.sum(axis=0)])
        curvature = ridge + 2 * strength
        return share @ losses + 0.5 * curvature * away @ away, slope + curvature * away

    return objective


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", [Vector, StructuredVector])
def test_reaches_the_optimum(method, dtype, weighted, world, monkeypatch):
    logits, labels = world(1200, CLASSES, 1.5)
    logits = (logits * np.linspace(0.7, 1.3, CLASSES) + np.linspace(-1, 1, CLASSES) + 30).astype(dtype)
    weight = np.random.default_rng(0).uniform(0.1, 2, 1200) if weighted else None
    calibrator = method().fit(logits, labels, weight)
    monkeypatch.setattr("calibrators.fitting.feature_chunks._ENTRIES_KEPT", 0)
    unkept = method().fit(logits, labels, weight)
    exact = logits.astype(np.float64)
    if method is Vector:
        centre = exact.mean(axis=0) if weight is None else weight @ exact / weight.sum()
        features = exact - centre
        spread = np.average((features**2).mean(axis=1), weights=weight) ** 0.5
        features /= spread
        found = [
            np.concatenate([one.weights_ * spread, one.intercepts_ + one.weights_ * centre])
            for one in (calibrator, unkept)
        ]
        objective = penalised(features, labels, weight, 1e-6, 0.0)
    else:
        assert unkept.temperature_ == pytest.approx(calibrator.temperature_, rel=1e-12)
        features = np.maximum(special.log_softmax(exact / calibrator.temperature_, axis=1), -87.3)
        rows = 1200 if weight is None else weight.sum() ** 2 / (weight**2).sum()
        found = [np.concatenate([one.weights_, one.intercepts_]) for one in (calibrator, unkept)]
        objective = penalised(features, labels, weight, 1e-6, CLASSES / rows)
    start = np.concatenate([np.ones(CLASSES), np.zeros(CLASSES)])
    options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 0, "gtol": 1e-8, "maxcor": 50}
    least = optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options).fun
    for theta in found:
        assert objective(theta)[0] <= least + 1e-7


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e5, 1e37])
@pytest.mark.parametrize("truth", ["drawn", "separable", "missing classes", "one class"])
@pytest.mark.parametrize("method", [Vector, StructuredVector])
def test_extremes_in_single_precision(method, truth, scale, world, monkeypatch):
    monkeypatch.setattr("calibrators.fitting.feature_chunks._ENTRIES_KEPT", 0)
    logits, labels = world(300, CLASSES, 1.5, dtype=np.float32)
    labels = {
        "drawn": labels,
        "separable": logits.argmax(axis=1),
        "missing classes": labels % 100,
        "one class": np.zeros(300, np.int64),
    }[truth]
    logits[::7, 3] = np.where(labels[::7] == 3, 0.0, -np.inf)
    logits *= np.float32(scale)
    calibrator = method().fit(logits, labels)
    monkeypatch.undo()
    twin = method().fit(logits.astype(np.float64), labels)
    found, expected = (one.predict_proba(logits.astype(np.float64)) for one in (calibrator, twin))
    assert (found[::7, 3][labels[::7] != 3] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    losses = [-np.log(one[np.arange(300), labels]) for one in (found, expected)]
    assert np.mean(losses[0]) == pytest.approx(np.mean(losses[1]), abs=1e-6)
