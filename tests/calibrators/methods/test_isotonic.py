from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from sklearn.isotonic import IsotonicRegression

from calibrators import CalibrationDataError, CentredIsotonic, Isotonic, metrics, softmax
from tests.calibrators.two_classes import logits_of

BOTH = pytest.mark.parametrize("method", [Isotonic, CentredIsotonic])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 60), coarse=st.booleans(), weighted=st.booleans())
def test_agrees_with_scikit_learn(seed, rows, coarse, weighted):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2, rows)
    scores = np.round(scores) if coarse else scores
    labels = (rng.random(rows) < special.expit(scores)).astype(int)
    weight = rng.uniform(0.1, 2, rows) if weighted else None
    oracle = IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1).fit(special.expit(scores), labels, weight)
    fresh = rng.normal(0, 3, 200)
    found = Isotonic().fit(logits_of(scores), labels, weight).predict_proba(logits_of(fresh))[:, 1]
    np.testing.assert_allclose(found, oracle.predict(special.expit(fresh)), atol=1e-9)


def test_is_the_minimax_of_means():
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(0, 2, 40))
    labels = (rng.random(40) < special.expit(scores)).astype(int)
    expected = [max(min(labels[j : k + 1].mean() for k in range(i, 40)) for j in range(i + 1)) for i in range(40)]
    found = Isotonic().fit(logits_of(scores), labels).predict_proba(logits_of(scores))[:, 1]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_one_vs_rest_is_renormalised(world):
    logits, labels = world(600, 4, 1.7)
    probabilities = softmax(logits)
    curves = np.stack(
        [
            IsotonicRegression(out_of_bounds="clip").fit(probabilities[:, k], labels == k).predict(probabilities[:, k])
            for k in range(4)
        ],
        axis=1,
    )
    expected = curves / curves.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(Isotonic().fit(logits, labels).predict_proba(logits), expected, atol=1e-9)


def test_a_row_of_zeros_gets_its_softmax():
    # Each class was right at 0.6 only, and wrong at 0.4 and below: of a row that is 0.39, 0.31, 0.3 nothing is left.
    rows = np.log([[0.6, 0.4, 1e-9], [1e-9, 0.6, 0.4], [0.4, 1e-9, 0.6]])
    calibrator = Isotonic().fit(rows, [0, 1, 2])
    np.testing.assert_allclose(calibrator.predict_proba(rows), np.eye(3))
    logits = np.log([[0.39, 0.31, 0.3], [0.35, 0.34, 0.31]])
    np.testing.assert_allclose(calibrator.predict_proba(logits), softmax(logits))


def test_probabilities_that_round_to_the_same_are_ties():
    # The sigmoid of both log-odds is 1 in float64, so one level stands for both rows.
    logits = logits_of(np.array([-1.0, 40.0, 50.0]))
    for method in (Isotonic, CentredIsotonic):
        found = method().fit(logits, [0, 0, 1]).predict_proba(logits)[:, 1]
        np.testing.assert_array_equal(found, [0, 0.5, 0.5])


def test_plateaus_are_drawn_together_at_their_mean():
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 2, 300)
    labels = (rng.random(300) < special.expit(scores)).astype(int)
    weight = rng.uniform(0.1, 2, 300)
    plain = Isotonic().fit(logits_of(scores), labels, weight)
    centred = CentredIsotonic().fit(logits_of(scores), labels, weight)
    inputs = special.expit(scores)
    levels = plain.predict_proba(logits_of(scores))[:, 1]
    for x, y in zip(centred.inputs_[0], centred.outputs_[0], strict=True):
        block = np.abs(levels - y) < 1e-9
        assert x == pytest.approx(np.average(inputs[block], weights=weight[block]))
        assert y == pytest.approx(np.average(labels[block], weights=weight[block]))


def test_rises_strictly_between_its_ends():
    rng = np.random.default_rng(2)
    scores = rng.normal(0, 2, 2000)
    labels = (rng.random(2000) < special.expit(scores)).astype(int)
    calibrator = CentredIsotonic().fit(logits_of(scores), labels)
    low, high = calibrator.inputs_[0][[0, -1]]
    grid = special.logit(np.linspace(low, high, 500)[1:-1])
    assert (np.diff(calibrator.predict_proba(logits_of(grid))[:, 1]) > 0).all()


@BOTH
def test_mends_what_no_formula_fits(method):
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 2, 20_000)
    labels = (rng.random(20_000) < 0.5 + 0.4 * np.sign(scores)).astype(int)
    logits = logits_of(scores)
    calibrator = method().fit(logits[:10_000], labels[:10_000])
    found = metrics.debiased_calibration_error(calibrator.predict_proba(logits[10_000:]), labels[10_000:])
    assert found < 5e-4 < metrics.debiased_calibration_error(softmax(logits[10_000:]), labels[10_000:])


@BOTH
def test_contradictory_documents_are_refused(method, world):
    document = method().fit(*world(200, 2)).to_dict()
    inputs, outputs = document["inputs"][0], document["outputs"][0]
    for change in (
        {"inputs": [inputs[::-1]]},
        {"outputs": [outputs[::-1]]},
        {"outputs": [outputs[:-1]]},
        {"outputs": [[*outputs[:-1], 1.5]]},
        {"inputs": [[]], "outputs": [[]]},
        {"classes": 3},
    ):
        with pytest.raises(CalibrationDataError):
            method.from_dict({**document, **change})
