from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from calibrators import BBQ, CalibrationDataError, Histogram, metrics, softmax
from tests.calibrators.two_classes import logits_of


def by_definition(chances, labels, fresh):
    """Naeini 2015, equations as printed, for distinct chances."""
    rows = len(chances)
    order = np.argsort(chances)
    chances, labels = chances[order], labels[order]
    scores, predictions = [], []
    for bins in range(max(1, int(rows ** (1 / 3) / 10)), min(rows, int(np.ceil(10 * rows ** (1 / 3)))) + 1):
        ends = [-(-i * rows // bins) - 1 for i in range(1, bins)]
        edges = np.concatenate([[0], chances[ends], [1]])
        score, values = 0.0, []
        for b in range(bins):
            inside = (chances <= edges[b + 1]) & ((chances > edges[b]) | (b == 0))
            size, hits = inside.sum(), labels[inside].sum()
            alpha = 2 / bins * (edges[b] + edges[b + 1]) / 2
            beta = 2 / bins - alpha
            score += special.gammaln(2 / bins) - special.gammaln(size + 2 / bins)
            score += special.gammaln(hits + alpha) - special.gammaln(alpha)
            score += special.gammaln(size - hits + beta) - special.gammaln(beta)
            values.append((hits + alpha) / (size + 2 / bins))
        scores.append(score)
        predictions.append([values[np.searchsorted(edges[1:-1], p)] for p in fresh])
    return special.softmax(scores) @ np.array(predictions)


@pytest.mark.parametrize("rows", [1, 5, 60, 400])
def test_agrees_with_the_published_equations(rows):
    rng = np.random.default_rng(rows)
    scores = rng.normal(0, 2, rows)
    labels = (rng.random(rows) < special.expit(0.5 * scores)).astype(int)
    fresh = rng.normal(0, 3, 100)
    expected = by_definition(special.expit(scores), labels, special.expit(fresh))
    found = BBQ().fit(logits_of(scores), labels).predict_proba(logits_of(fresh))[:, 1]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_one_curve_for_each_class(world):
    logits, labels = world(150, 3, 1.5)
    fresh = world(40, 3, seed=2)[0]
    curves = np.stack(
        [by_definition(softmax(logits)[:, k], (labels == k).astype(int), softmax(fresh)[:, k]) for k in range(3)],
        axis=1,
    )
    found = BBQ().fit(logits, labels).predict_proba(fresh)
    np.testing.assert_allclose(found, curves / curves.sum(axis=1, keepdims=True), atol=1e-4)


def test_better_than_one_histogram():
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 2, 12_000)
    labels = (rng.random(12_000) < 0.5 + 0.4 * np.sign(scores)).astype(int)
    logits = logits_of(scores)
    fit, test = slice(0, 2000), slice(2000, 12_000)
    bbq, histogram = (
        metrics.negative_log_likelihood(one.fit(logits[fit], labels[fit]).predict_proba(logits[test]), labels[test])
        for one in (BBQ(), Histogram(on="per_class"))
    )
    assert bbq < histogram + 0.002
    assert (
        metrics.debiased_calibration_error(
            BBQ().fit(logits[fit], labels[fit]).predict_proba(logits[test]), labels[test]
        )
        < 2e-3
    )


def test_never_certain():
    scores = np.linspace(-800, 800, 300)
    calibrator = BBQ().fit(logits_of(scores), (scores > 0).astype(int))
    probabilities = calibrator.predict_proba(logits_of(scores))
    assert probabilities.min() > 0
    assert probabilities.max() < 1


def test_contradictory_documents_are_refused(world):
    document = BBQ().fit(*world(200, 2)).to_dict()
    edges, values = document["edges"][0], document["values"][0]
    for change in (
        {"edges": [edges[::-1]]},
        {"values": [values[:-1]]},
        {"values": [[0.0, *values[1:]]]},
        {"weight_kind": "x"},
        {"classes": 3},
    ):
        with pytest.raises(CalibrationDataError):
            BBQ.from_dict({**document, **change})
    with pytest.raises(CalibrationDataError, match="weight_kind"):
        BBQ("x")
