from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from calibrators import (
    CalibrationDataError,
    Dirichlet,
    Matrix,
    StructuredMatrix,
    StructuredVector,
    Temperature,
    Vector,
    metrics,
)

BOTH = pytest.mark.parametrize("method", [StructuredVector, StructuredMatrix])


def penalised(method, calibrator, logits, labels, weight, rows):
    """The objective as published, of a flat (A, b)."""
    classes = logits.shape[1]
    features = special.log_softmax(logits / calibrator.temperature_, axis=1)
    eye, k = np.eye(classes), classes / rows

    def objective(theta):
        shift = theta[-classes:]
        matrix = np.diag(theta[:classes]) if method is StructuredVector else theta[:-classes].reshape(classes, classes)
        scores = features @ matrix.T + shift
        nll = special.logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels]
        away = (matrix - eye) ** 2
        diagonal, off = np.trace(away), away.sum() - np.trace(away)
        return np.average(nll, weights=weight) + k * diagonal + k * (classes - 1) * off + k * (shift**2).sum()

    return objective


@BOTH
@pytest.mark.parametrize(("weighted", "kind"), [(False, "importance"), (True, "importance"), (True, "frequency")])
def test_reaches_the_minimum_of_the_published_objective(method, weighted, kind, world):
    logits, labels = world(500, 3, 1.7)
    labels = np.where(np.arange(500) % 7 == 0, 1, labels)
    weight = np.random.default_rng(1).uniform(0.1, 2, 500) if weighted else None
    if kind == "frequency":
        weight = np.ceil(weight)
    rows = 500 if weight is None else weight.sum() if kind == "frequency" else weight.sum() ** 2 / (weight**2).sum()
    calibrator = method(weight_kind=kind).fit(logits, labels, weight)
    objective = penalised(method, calibrator, logits, labels, weight, rows)
    start = np.concatenate([np.ones(3) if method is StructuredVector else np.eye(3).ravel(), np.zeros(3)])
    least = optimize.minimize(objective, start, options={"gtol": 1e-8}).fun
    found = objective(np.concatenate([calibrator.weights_.ravel(), calibrator.intercepts_]))
    assert found <= least + 1e-7


@BOTH
def test_great_strength_is_temperature_scaling(method, world):
    logits, labels = world(300, 4, 1.6)
    np.testing.assert_allclose(
        method(strength=1e9).fit(logits, labels).predict_proba(logits),
        Temperature().fit(logits, labels).predict_proba(logits),
        atol=1e-7,
    )


@pytest.mark.parametrize(("method", "free"), [(StructuredVector, Vector), (StructuredMatrix, lambda: Matrix(1e-2))])
def test_overfits_less_than_the_method_without_structure(method, free, world):
    logits, labels = world(4200, 10, 1.8)
    fit, test = slice(0, 200), slice(200, 4200)
    structured, plain, temperature = (
        metrics.negative_log_likelihood(one.fit(logits[fit], labels[fit]).predict_proba(logits[test]), labels[test])
        for one in (method(), free(), Temperature())
    )
    assert structured < plain
    assert structured < temperature + 0.03


@BOTH
def test_learns_a_bias_of_one_class_from_many_rows(method, world):
    logits, labels = world(6000, 5, 1.0)
    shifted = logits + np.array([1.5, 0, 0, 0, 0])
    fit, test = slice(0, 3000), slice(3000, 6000)
    found = method().fit(shifted[fit], labels[fit]).predict_proba(shifted[test])
    ideal = metrics.negative_log_likelihood(special.softmax(logits[test], axis=1), labels[test])
    assert metrics.negative_log_likelihood(found, labels[test]) < ideal + 0.01


@BOTH
def test_bad_options_and_documents_are_refused(method, world):
    for options in ({"strength": -1.0}, {"strength": "x"}, {"weight_kind": "x"}):
        with pytest.raises(CalibrationDataError, match=next(iter(options))):
            method(**options)
    document = method().fit(*world(100, 3)).to_dict()
    for change in ({"weights": [1.0]}, {"weights": [[1.0]]}, {"intercepts": [0.0, 0.0]}, {"strength": -1.0}):
        with pytest.raises(CalibrationDataError):
            method.from_dict({**document, **change})


@pytest.mark.parametrize("method", [StructuredVector, StructuredMatrix, Vector, Matrix, Dirichlet])
def test_weights_near_the_largest_number_there_is_give_probabilities(method, world):
    logits, labels = world(300, 3)
    document = method().fit(logits, labels).to_dict()
    signs = np.array([[1.0, -1, 1], [-1, 1, 1], [1, 1, -1]])
    weights = 1e308 * (np.diag(signs) if method in (StructuredVector, Vector) else signs)
    for scale in (1.0, 1e5):
        found = method.from_dict({**document, "weights": weights.tolist()}).predict_proba(logits * scale)
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    moderate = method.from_dict({**document, "weights": (weights / 1e300).tolist()}).predict_proba(logits)
    huge = method.from_dict({**document, "weights": weights.tolist()}).predict_proba(logits)
    # A score beyond 1e300 is as good as any other of its sign.
    certain = (np.sort(moderate, axis=1)[:, -1] == 1) & (np.sort(huge, axis=1)[:, -1] == 1)
    assert certain.sum() > 30
    np.testing.assert_array_equal(huge[certain].argmax(axis=1), moderate[certain].argmax(axis=1))
