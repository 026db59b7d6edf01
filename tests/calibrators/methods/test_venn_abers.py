from __future__ import annotations

import numpy as np
import pytest
import venn_abers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from sklearn.isotonic import IsotonicRegression

from calibrators import CalibrationDataError, VennAbers
from tests.calibrators.two_classes import logits_of


def by_definition(scores, labels, weight, fresh):
    """Two isotonic regressions for each new row."""
    result = np.empty((2, len(fresh)))
    for i, score in enumerate(fresh):
        for label in (0, 1):
            curve = IsotonicRegression().fit(np.append(scores, score), np.append(labels, label), np.append(weight, 1.0))
            result[label, i] = curve.predict([score])[0]
    return result


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 40),
    coarse=st.booleans(),
    kind=st.sampled_from(["none", "importance", "frequency"]),
    slope=st.sampled_from([-1.0, 0.0, 1.0, 50.0]),
)
def test_is_two_isotonic_regressions_for_each_row(seed, rows, coarse, kind, slope):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2, rows)
    scores = np.round(scores) if coarse else scores
    labels = (rng.random(rows) < special.expit(slope * scores)).astype(int)
    drawn = {"none": None, "importance": rng.uniform(0.1, 2, rows), "frequency": rng.integers(1, 4, rows)}
    weight = drawn[kind]
    counted = np.ones(rows) if weight is None else weight
    if kind == "importance":
        counted = weight * weight.sum() / (weight @ weight)
    calibrator = VennAbers("frequency" if kind == "frequency" else "importance").fit(logits_of(scores), labels, weight)
    fresh = np.concatenate([rng.normal(0, 3, 12), scores[:5]])
    found = calibrator.bounds(logits_of(fresh))
    expected = by_definition(scores, labels, counted, fresh)
    np.testing.assert_allclose(found[:, :, 1], expected, atol=1e-9)
    np.testing.assert_allclose(found[:, :, 0], 1 - expected[::-1], atol=1e-9)
    merged = expected[1] / (1 - expected[0] + expected[1])
    np.testing.assert_allclose(calibrator.predict_proba(logits_of(fresh))[:, 1], merged, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_authors_package(seed):
    rng = np.random.default_rng(seed)
    scores, fresh = rng.normal(0, 2, 300), rng.normal(0, 2, 200)
    labels = (rng.random(300) < special.expit(scores)).astype(int)
    theirs = venn_abers.VennAbers()
    theirs.fit(special.softmax(logits_of(scores), axis=1), labels)
    merged, bounds = theirs.predict_proba(special.softmax(logits_of(fresh), axis=1))
    ours = VennAbers().fit(logits_of(scores), labels)
    np.testing.assert_allclose(ours.bounds(logits_of(fresh))[:, :, 1].T, bounds, atol=1e-12)
    np.testing.assert_allclose(ours.predict_proba(logits_of(fresh)), merged, atol=1e-12)


def test_one_of_the_two_is_calibrated_on_the_average():
    # Over draws of fit rows and a test row, the one of p0 and p1 that bears the row's label has its mean.
    rng = np.random.default_rng(0)
    difference = []
    for _ in range(600):
        scores = rng.normal(0, 2, 40)
        labels = (rng.random(40) < special.expit(0.3 * scores - 1)).astype(int)
        p0, p1 = VennAbers().fit(logits_of(scores[:35]), labels[:35]).bounds(logits_of(scores[35:]))[:, :, 1]
        difference.append((np.where(labels[35:] == 1, p1, p0) - labels[35:]).mean())
    assert abs(np.mean(difference)) < 3 * np.std(difference) / np.sqrt(600)


def test_never_certain_and_narrower_with_more_rows():
    rng = np.random.default_rng(1)
    widths = []
    for rows in (50, 500, 5000):
        scores = rng.normal(0, 2, rows)
        labels = (rng.random(rows) < special.expit(scores)).astype(int)
        calibrator = VennAbers().fit(logits_of(scores), labels)
        grid = logits_of(np.linspace(-40, 40, 500))
        probabilities = calibrator.predict_proba(grid)
        assert probabilities.min() > 0
        p0, p1 = calibrator.bounds(logits_of(np.linspace(-2, 2, 200)))[:, :, 1]
        assert (p0 <= p1).all()
        widths.append((p1 - p0).mean())
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_one_curve_for_each_class(world):
    logits, labels = world(60, 3, 1.5)
    fresh = world(10, 3, seed=4)[0]
    found = VennAbers().fit(logits, labels)
    expected = np.empty((2, 10, 3))
    for k in range(3):
        odds = [v[:, k] - special.logsumexp(np.delete(v, k, axis=1), axis=1) for v in (logits, fresh)]
        expected[:, :, k] = by_definition(odds[0], labels == k, np.ones(60), odds[1])
    np.testing.assert_allclose(found.bounds(fresh), expected, atol=1e-9)
    merged = expected[1] / (1 - expected[0] + expected[1])
    np.testing.assert_allclose(found.predict_proba(fresh), merged / merged.sum(axis=1, keepdims=True), atol=1e-9)


def test_frequencies_are_repeated_rows(world):
    logits, labels = world(200, 2, 1.5)
    counts = np.random.default_rng(3).integers(0, 4, 200)
    weighted = VennAbers("frequency").fit(logits, labels, counts).bounds(logits)
    repeated = VennAbers().fit(np.repeat(logits, counts, axis=0), np.repeat(labels, counts)).bounds(logits)
    np.testing.assert_allclose(weighted, repeated, atol=1e-9)


def test_certain_rows_are_certain():
    calibrator = VennAbers().fit(logits_of(np.arange(5.0)), [0, 1, 0, 1, 1])
    found = calibrator.bounds([[0.0, -np.inf], [-np.inf, 0.0]])
    np.testing.assert_array_equal(found, [[[1, 0], [0, 1]]] * 2)


def test_contradictory_documents_are_refused(world):
    document = VennAbers().fit(*world(200, 2)).to_dict()
    zeros, ones = document["zero_outputs"][0], document["one_outputs"][0]
    for change in (
        {"zero_outputs": [zeros[::-1]]},
        {"zero_outputs": [[*zeros[:-1], 1.0]]},
        {"one_outputs": [[0.0, *ones[1:]]]},
        {"one_outputs": [ones[:-1]]},
        {"one_inputs": [document["one_inputs"][0][::-1]]},
        {"weight_kind": "x"},
        {"classes": 3},
        {"one_outputs": [[5e-324, *ones[1:]]]},
        {"zero_outputs": [np.linspace(0.9, 0.99, len(zeros)).tolist()]},
        {"zero_inputs": [[-1e9, *document["zero_inputs"][0][1:]]]},
    ):
        with pytest.raises(CalibrationDataError):
            VennAbers.from_dict({**document, **change})
    with pytest.raises(CalibrationDataError, match="weight_kind"):
        VennAbers("x")
