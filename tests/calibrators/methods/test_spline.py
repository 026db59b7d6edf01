from __future__ import annotations

import numpy as np
import pytest
from scipy import interpolate, optimize, special

from calibrators import CalibrationDataError, Spline, metrics, softmax


def top(logits):
    probabilities = softmax(logits)
    return probabilities.max(axis=1), probabilities.argmax(axis=1)


@pytest.mark.parametrize("knots", [2, 3, 6, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_is_the_slope_of_the_least_squares_natural_spline(knots, weighted, world):
    logits, labels = world(300, 4, 1.8)
    weight = np.random.default_rng(1).uniform(0.2, 2, 300) if weighted else np.ones(300)
    confidence, predicted = top(logits)
    order = np.argsort(confidence)
    share = weight[order] / weight.sum()
    ends = np.cumsum(share)
    drift = np.cumsum(share * ((predicted == labels)[order] - confidence[order]))
    at = np.linspace(0, 1, knots)

    def spline(inner):
        return interpolate.CubicSpline(at, [0, *inner, drift[-1]], bc_type="natural") if knots > 2 else None

    if knots > 2:
        best = optimize.least_squares(lambda h: np.sqrt(share) * (spline(h)(ends) - drift), np.zeros(knots - 2)).x
        middles = ends - share / 2
        slopes = spline(best)(middles, 1)
    else:
        slopes = np.full(300, drift[-1])
    expected = np.clip(confidence[order] + slopes, 0.5 / 301, 300.5 / 301)
    calibrator = Spline(knots).fit(logits, labels, weight)
    found = calibrator.top_label(logits, calibrator.predict_proba(logits))[1][order]
    np.testing.assert_allclose(found[:-1], expected[:-1], atol=2e-3)


def test_the_mean_calibrated_confidence_is_the_accuracy(world):
    logits, labels = world(900, 5, 1.6)
    weight = np.random.default_rng(2).uniform(0.2, 2, 900)
    calibrator = Spline().fit(logits, labels, weight)
    predicted, confidence = calibrator.top_label(logits, calibrator.predict_proba(logits))
    assert np.average(confidence, weights=weight) == pytest.approx(np.average(predicted == labels, weights=weight))


def test_mends_a_curve_that_no_formula_fits():
    rng = np.random.default_rng(4)
    scores = rng.normal(0, 2, 20_000)
    chance = special.expit(0.6 * scores + 0.8 * np.sin(scores))
    labels = (rng.random(20_000) < chance).astype(int)
    logits = np.stack([np.zeros(20_000), scores], axis=1)
    calibrator = Spline().fit(logits[:10_000], labels[:10_000])
    before, after = softmax(logits[10_000:]), calibrator.predict_proba(logits[10_000:])
    assert metrics.debiased_calibration_error(after, labels[10_000:]) < 3e-4
    assert metrics.debiased_calibration_error(before, labels[10_000:]) > 2e-3


def test_many_rows_are_kept_as_few_points(world):
    logits, labels = world(6000, 3, 1.5)
    calibrator = Spline().fit(logits, labels)
    assert len(calibrator.inputs_) <= 1026
    confidence = top(logits)[0]
    assert calibrator.inputs_[0] == pytest.approx(confidence.min())
    assert calibrator.inputs_[-1] == pytest.approx(confidence.max())


def test_ties_do_not_depend_on_the_order_of_rows(world):
    logits, labels = world(400, 3, 1.5)
    logits = np.round(logits)
    order = np.random.default_rng(0).permutation(400)
    np.testing.assert_allclose(
        Spline().fit(logits, labels).outputs_, Spline().fit(logits[order], labels[order]).outputs_, atol=1e-9
    )


def test_bad_options_and_documents_are_refused(world):
    for options in ({"knots": 1}, {"knots": 2.5}, {"weight_kind": "x"}):
        with pytest.raises(CalibrationDataError, match=next(iter(options))):
            Spline(**options)
    document = Spline().fit(*world(100, 3)).to_dict()
    for change in ({"inputs": document["inputs"][::-1]}, {"outputs": document["outputs"][1:]}, {"knots": 1}):
        with pytest.raises(CalibrationDataError):
            Spline.from_dict({**document, **change})
