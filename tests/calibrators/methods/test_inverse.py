"""From the calibrated scale back to logits and margins: round trips, to the last bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrators import (
    CALIBRATORS,
    CalibrationDataError,
    CalibrationFitError,
    Temperature,
    from_dict,
    inverse,
    logits_from_probabilities,
    margin_thresholds,
)
from calibrators.methods.inverse import INVERSES
from calibrators.methods.margins import margin_logits

ANY_CLASSES = ["identity", "temperature", "vector", "matrix", "dirichlet", "structured_vector", "structured_matrix"]
BINARY = [*ANY_CLASSES, "platt", "beta", "centred_isotonic", "ensemble_temperature", "prior_shift", "auto"]
# What sees only differences of logits, and maps different ones to different probabilities everywhere.
EXACT = ["identity", "temperature", "dirichlet", "structured_vector", "structured_matrix", "platt", "prior_shift"]


def fitted(name, world, classes, temperature=1.7, rows=2000):
    logits, labels = world(rows, classes, temperature)
    calibrator = CALIBRATORS[name]().fit(logits, labels)
    if name == "prior_shift":
        calibrator.adapt_to(np.arange(1, classes + 1) / (classes * (classes + 1) / 2))
    return calibrator


def margins(values):
    values = np.asarray(values, np.float64)
    return np.stack([np.zeros_like(values), values], axis=1)


def test_every_method_with_an_inverse_is_tested():
    assert {kind.name for kind in INVERSES} == set(BINARY)


@pytest.mark.parametrize(
    ("name", "classes"),
    [(name, 2) for name in BINARY] + [(name, k) for name in [*ANY_CLASSES, "prior_shift"] for k in (3, 10)],
)
def test_probabilities_come_back(name, classes, world):
    calibrator = fitted(name, world, classes)
    probabilities = calibrator.predict_proba(world(500, classes, seed=5)[0])
    logits = inverse(calibrator, probabilities)
    assert logits.dtype == np.float64
    # A steep piece of a curve of the probability cannot be met better than the probability's own last bit allows.
    close = 1e-11 if name == "centred_isotonic" else 3e-13
    np.testing.assert_allclose(calibrator.predict_proba(logits), probabilities, rtol=close, atol=1e-16)
    single = inverse(calibrator, probabilities.astype(np.float32))
    np.testing.assert_allclose(calibrator.predict_proba(single), probabilities, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "classes"), [(name, k) for name in EXACT for k in (2, 3, 10) if name != "platt" or k == 2] + [("beta", 2)]
)
def test_logits_come_back_but_for_their_height(name, classes, world):
    calibrator = fitted(name, world, classes)
    logits = world(500, classes, seed=5)[0]
    back = inverse(calibrator, calibrator.predict_proba(logits))
    np.testing.assert_allclose(back.max(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(back, logits - logits.max(axis=1, keepdims=True), atol=2e-12)


@pytest.mark.parametrize("name", ["vector", "matrix"])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_maps_that_see_the_height_bring_back_logits_of_mean_zero(name, classes, world):
    calibrator = fitted(name, world, classes)
    logits = world(500, classes, seed=5)[0]
    logits -= logits.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(inverse(calibrator, calibrator.predict_proba(logits)), logits, atol=1e-11)


def test_a_thousand_classes(world):
    logits, labels = world(400, 1000, 1.5)
    for name in ("temperature", "vector", "structured_vector"):
        calibrator = CALIBRATORS[name]().fit(logits, labels)
        probabilities = calibrator.predict_proba(logits[:20])
        np.testing.assert_allclose(
            calibrator.predict_proba(inverse(calibrator, probabilities)), probabilities, rtol=1e-11
        )


def test_no_rows_are_fine(world):
    assert inverse(fitted("beta", world, 2), np.empty((0, 2))).shape == (0, 2)
    assert margin_thresholds(fitted("beta", world, 2), []).shape == (0,)


@pytest.mark.parametrize("name", ["identity", "temperature", "platt", "beta", "centred_isotonic"])
def test_certainty_comes_back_as_certainty(name, world):
    calibrator = fitted(name, world, 2)
    np.testing.assert_array_equal(inverse(calibrator, [[1.0, 0.0], [0.0, 1.0]]), [[0, -np.inf], [-np.inf, 0]])


def test_small_probabilities_keep_their_digits(world):
    rare = np.array([1e-300, 1e-100, 1e-20, 1e-8])
    pairs = np.concatenate([np.stack([1 - rare, rare], axis=1), np.stack([rare, 1 - rare], axis=1)])
    for name in ("identity", "temperature", "platt", "beta"):
        calibrator = fitted(name, world, 2)
        # Within the digits that a logit of a thousand leaves to its exponential.
        np.testing.assert_allclose(calibrator.predict_proba(inverse(calibrator, pairs)), pairs, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(a=st.floats(1e-3, 1e3), b=st.floats(1e-3, 1e3), c=st.floats(-20, 20), chance=st.floats(1e-12, 1 - 1e-12))
def test_beta_of_any_shape(a, b, c, chance):
    calibrator = from_dict({"method": "beta", "version": 1, "classes": 2, "coefficients": [[a, b, c]]})
    pair = np.array([[1 - chance, chance]])
    margin = np.subtract(*inverse(calibrator, pair)[0, ::-1])
    log_odds = -a * np.logaddexp(0, -margin) + b * np.logaddexp(0, margin) + c
    np.testing.assert_allclose(log_odds, np.log(chance) - np.log1p(-chance), rtol=1e-10, atol=1e-10)


def test_what_cannot_be_inverted_is_refused_with_the_reason(world):
    half = [[0.5, 0.5]]
    for name in set(CALIBRATORS) - set(BINARY):
        with pytest.raises(CalibrationDataError, match="No inverse"):
            inverse(fitted(name, world, 2, rows=200), half)
    for name in ("platt", "beta", "centred_isotonic", "ensemble_temperature"):
        with pytest.raises(CalibrationDataError, match="two classes"):
            inverse(fitted(name, world, 3, rows=200), [[0.2, 0.3, 0.5]])
    document = fitted("platt", world, 2).to_dict()
    with pytest.raises(CalibrationDataError, match="slope 0"):
        inverse(from_dict({**document, "slopes": [0.0]}), half)
    with pytest.raises(CalibrationDataError, match="both sides"):
        inverse(CALIBRATORS["platt"](on="margin").fit(*world(200, 2)), half)
    document = fitted("matrix", world, 2).to_dict()
    with pytest.raises(CalibrationDataError, match="singular"):
        inverse(from_dict({**document, "weights": [[0.0, 0.0], [0.0, 0.0]]}), half)
    document = fitted("dirichlet", world, 2).to_dict()
    with pytest.raises(CalibrationDataError, match="several"):
        inverse(from_dict({**document, "weights": [[1.0, 0.0], [0.0, -1.0]]}), half)
    document = fitted("ensemble_temperature", world, 2).to_dict()
    with pytest.raises(CalibrationDataError, match="constant"):
        inverse(from_dict({**document, "weights": [0.0, 0.0, 1.0]}), half)
    with pytest.raises(CalibrationDataError, match="target prior of 0"):
        inverse(fitted("prior_shift", world, 3).adapt_to([0, 0.5, 0.5]), [[0.2, 0.3, 0.5]])
    with pytest.raises(CalibrationDataError, match="probability of 0"):
        inverse(fitted("vector", world, 2), [[0.0, 1.0]])
    with pytest.raises(CalibrationDataError, match="3 columns"):
        inverse(fitted("temperature", world, 3), half)
    with pytest.raises(CalibrationFitError, match="not fitted"):
        inverse(CALIBRATORS["temperature"](), half)
    with pytest.raises(CalibrationDataError, match="sums to"):
        inverse(fitted("temperature", world, 2), [[0.5, 0.6]])


def test_probabilities_outside_the_range_are_refused(world):
    mixed = from_dict({**fitted("ensemble_temperature", world, 2).to_dict(), "weights": [0.4, 0.4, 0.2]})
    assert np.isfinite(inverse(mixed, [[0.11, 0.89]])).all()
    with pytest.raises(CalibrationDataError, match=r"probabilities\[1\]"):
        inverse(mixed, [[0.5, 0.5], [0.05, 0.95]])
    halved = from_dict({**fitted("structured_vector", world, 2).to_dict(), "weights": [1e-3, 1e-3]})
    with pytest.raises(CalibrationDataError, match=r"probabilities\[0\]"):
        inverse(halved, [[1.0 - 1e-6, 1e-6]])


@pytest.mark.parametrize(
    "name",
    [name for name, kind in CALIBRATORS.items() if kind.preserves_order] + ["platt", "auto", "prior_shift"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_decide_alike_on_both_scales(name, dtype, world):
    calibrator = fitted(name, world, 2)
    raw = np.concatenate([np.linspace(-12, 12, 1501), [-1e300, -50, 50, 1e300, -np.inf, np.inf]])
    logits = margin_logits(raw)
    chances = calibrator.predict_proba(logits)[:, 1].astype(dtype)
    thresholds = np.concatenate([np.linspace(0, 1, 41).astype(dtype), chances[::50], np.nextafter(chances[::50], 1)])
    for side, expected in (("left", np.greater_equal), ("right", np.greater)):
        found = margin_thresholds(calibrator, thresholds, side, dtype)
        for threshold, margin in zip(thresholds, found, strict=True):
            reached = expected(chances, threshold)
            # At +inf stand those that only certain rows reach, and those that nobody does.
            decided = raw >= margin if margin < np.inf else (raw == np.inf) & reached[-1]
            if name == "ensemble_temperature":
                # A sum of three terms, it wavers in its last bits.
                reached = np.where(np.abs(chances - threshold) < 4e-16, decided, reached)
            np.testing.assert_array_equal(reached, decided)


def test_thresholds_are_the_very_numbers(world):
    calibrator = fitted("beta", world, 2)
    thresholds = np.array([0.01, 0.2, 0.5, 0.97])
    found = margin_thresholds(calibrator, thresholds)
    assert (calibrator.predict_proba(margins(found))[:, 1] >= thresholds).all()
    assert (calibrator.predict_proba(margins(np.nextafter(found, -np.inf)))[:, 1] < thresholds).all()


def test_a_plateau_is_the_margins_between_left_and_right(world):
    logits, labels = world(400, 2, 1.7)
    calibrator = CALIBRATORS["isotonic"]().fit(logits, labels)
    inputs, outputs = calibrator.inputs_[0], calibrator.outputs_[0]
    inner = (np.diff(outputs) == 0) & (outputs[1:] > outputs[0]) & (outputs[1:] < outputs[-1])
    level = outputs[np.argmax(np.diff(inputs) * inner)]
    left, right = (float(margin_thresholds(calibrator, level, side)) for side in ("left", "right"))
    assert right - left > 1e-3
    inside = np.linspace(left, np.nextafter(right, -np.inf), 50)
    np.testing.assert_array_equal(calibrator.predict_proba(margins(inside))[:, 1], level)
    outside = np.array([left - 1e-12, right])
    assert (calibrator.predict_proba(margins(outside))[:, 1] != level).all()


def test_thresholds_at_the_ends(world):
    mixed = from_dict({**fitted("ensemble_temperature", world, 2).to_dict(), "weights": [0.4, 0.4, 0.2]})
    lowest, reached, never = margin_thresholds(mixed, [0.0, 0.05, 0.95])
    assert lowest == -np.inf
    assert reached == -np.finfo(np.float64).max
    assert never == np.inf
    assert margin_thresholds(mixed, 0.5).shape == ()


def test_thresholds_need_an_order(world):
    for name in ("quadratic", "bbq", "vector", "histogram"):
        with pytest.raises(CalibrationDataError, match="order"):
            margin_thresholds(fitted(name, world, 2, rows=200), 0.5)
    logits, labels = world(300, 2)
    with pytest.raises(CalibrationDataError, match="order"):
        margin_thresholds(CALIBRATORS["platt"]().fit(logits, 1 - labels), 0.5)
    with pytest.raises(CalibrationDataError, match="order"):
        margin_thresholds(CALIBRATORS["platt"](on="margin").fit(logits, labels), 0.5)
    with pytest.raises(CalibrationDataError, match="3 classes"):
        margin_thresholds(fitted("temperature", world, 3), 0.5)
    for unfitted in ("temperature", "platt", "prior_shift", "auto"):
        with pytest.raises(CalibrationFitError, match="not fitted"):
            margin_thresholds(CALIBRATORS[unfitted](), 0.5)
    for bad in (1.5, [-0.1], np.nan, "x", None):
        with pytest.raises(CalibrationDataError, match="probabilities"):
            margin_thresholds(CALIBRATORS["identity"](), bad)
    with pytest.raises(CalibrationDataError, match="side"):
        margin_thresholds(CALIBRATORS["identity"](), 0.5, side="middle")
    for dtype in (np.float16, "foo", 5):
        with pytest.raises(CalibrationDataError, match="dtype"):
            margin_thresholds(CALIBRATORS["identity"](), 0.5, dtype=dtype)


def test_what_is_no_calibrator_is_refused_with_the_reason(world):
    logits, labels = world(200, 2)
    half = [[0.5, 0.5]]
    for wrong, found in ((None, "a NoneType"), ("platt", "'platt'"), ([], "a list")):
        for call in (lambda wrong=wrong: inverse(wrong, half), lambda wrong=wrong: margin_thresholds(wrong, 0.5)):
            with pytest.raises(CalibrationDataError, match="Wrong type: calibrator is") as caught:
                call()
            assert caught.value.found == found
    assert caught.value.expected == "a fitted Calibrator"

    class Warmer(Temperature):
        """A method of one's own under the name of another."""

    with pytest.raises(CalibrationDataError, match="a subclass"):
        inverse(Warmer().fit(logits, labels), half)


def test_probabilities_made_logits_and_back():
    probabilities = np.array([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    identity = CALIBRATORS["identity"]()
    np.testing.assert_array_equal(inverse(identity, probabilities)[0], logits_from_probabilities(probabilities, 0)[0])
