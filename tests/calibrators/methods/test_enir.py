from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from calibrators import ENIR, CalibrationDataError, Isotonic, metrics
from calibrators.fitting.near_isotonic import NearIsotonicPath
from tests.calibrators.two_classes import logits_of


def levels_of(path, size):
    starts, levels = path.blocks()
    return np.repeat(levels, np.diff(starts, append=size))


def near_isotonic(y, w, penalty):
    """By its dual: z = y − Dᵀu / w with 0 ≤ u ≤ λ, a bounded least squares."""
    size = len(y)
    if size == 1 or penalty == 0:
        return y
    difference = np.eye(size)[:-1] - np.eye(size, k=1)[:-1]
    root = np.sqrt(w)
    found = optimize.lsq_linear((difference / root).T, y * root, bounds=(0, penalty), method="bvls")
    return y - difference.T @ found.x / w


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 25), labels=st.booleans())
def test_the_path_is_the_minimiser_at_each_of_its_steps(seed, size, labels):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size).astype(float) if labels else rng.random(size)
    w = rng.uniform(0.5, 2, size)
    path = NearIsotonicPath(y, w)
    last = None
    for _ in path.steps():
        last = levels_of(path, size)
        np.testing.assert_allclose(last, near_isotonic(y, w, path._penalty), atol=1e-6)
    np.testing.assert_allclose(last, optimize.isotonic_regression(y, weights=w).x, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 2, 30, 200])
def test_averages_the_path_by_its_criterion(rows):
    rng = np.random.default_rng(rows)
    scores = np.sort(rng.normal(0, 2, rows))
    labels = (rng.random(rows) < special.expit(scores)).astype(float)
    path, models, criteria = NearIsotonicPath(labels, np.ones(rows)), [], []
    for count in path.steps():
        z = np.clip(levels_of(path, rows), 0, 1)
        models.append(z)
        likelihood = special.xlogy(labels, z).sum() + special.xlog1py(1 - labels, -z).sum()
        criteria.append(count * np.log(max(rows, 2)) - 2 * likelihood)
    expected = special.softmax(-np.array(criteria) / 2) @ np.array(models)
    found = ENIR().fit(logits_of(scores), labels.astype(int)).predict_proba(logits_of(scores))[:, 1]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_follows_scores_in_the_wrong_order_where_isotonic_cannot():
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 2, 4000)
    chance = np.where(np.abs(scores) < 1.2, 0.85 - 0.3 * (scores > 0), np.where(scores > 0, 0.95, 0.05))
    logits, labels = logits_of(scores), (rng.random(4000) < chance).astype(int)
    fit, test = slice(0, 2000), slice(2000, 4000)
    ensemble, isotonic = (
        metrics.brier_score(method().fit(logits[fit], labels[fit]).predict_proba(logits[test]), labels[test])
        for method in (ENIR, Isotonic)
    )
    assert ensemble < isotonic


def test_the_path_of_many_labels_ends_in_their_isotonic_regression():
    rng = np.random.default_rng(5)
    scores = np.sort(rng.normal(0, 2, 6000))
    labels = (rng.random(6000) < special.expit(0.5 * scores)).astype(float)
    path = NearIsotonicPath(labels, np.ones(6000))
    expected = optimize.isotonic_regression(labels)
    assert min(path.steps()) == len(expected.blocks) - 1
    np.testing.assert_allclose(levels_of(path, 6000), expected.x, atol=1e-9)


def test_a_thinned_path_of_many_rows_stays_near_the_truth():
    rng = np.random.default_rng(5)
    scores = rng.normal(0, 2, 12_000)
    logits, chance = logits_of(scores), special.expit(0.5 * scores)
    found = ENIR().fit(logits, (rng.random(12_000) < chance).astype(int)).predict_proba(logits)[:, 1]
    assert np.abs(found - chance).mean() < 0.03


def test_contradictory_documents_are_refused(world):
    document = ENIR().fit(*world(200, 2)).to_dict()
    for change in (
        {"inputs": [document["inputs"][0][::-1]]},
        {"outputs": [document["outputs"][0][:-1]]},
        {"weight_kind": "x"},
        {"classes": 3},
    ):
        with pytest.raises(CalibrationDataError):
            ENIR.from_dict({**document, **change})
    with pytest.raises(CalibrationDataError, match="weight_kind"):
        ENIR("x")
