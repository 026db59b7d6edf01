"""Curves of several classes: searched together for few rows, class by class for many, with the same result."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from calibrators import CALIBRATORS
from calibrators.fitting.curves import (
    INTERP_ROUNDS_EACH_STEP,
    StackedInputs,
    StackedLines,
    StackedSteps,
    interpolate,
)
from calibrators.methods import one_vs_rest

CURVED = ("isotonic", "centred_isotonic", "venn_abers", "bbq", "enir")


def world(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    logits = draw.normal(scale=3, size=(rows, classes)).round(1)  # with ties
    labels = (logits + draw.gumbel(size=logits.shape)).argmax(axis=1)
    logits[::17, 1] = -np.inf
    labels[::17] = 0
    logits[5, 1:] = -np.inf  # class 0 is certain
    labels[5] = 0
    logits[7] *= 200
    labels[7] = logits[7].argmax()
    return logits, labels


@pytest.mark.parametrize("method", CURVED)
@pytest.mark.parametrize(("rows", "classes"), [(300, 3), (2000, 11), (40, 30)])
def test_a_row_is_calibrated_the_same_alone_and_among_others(method: str, rows: int, classes: int) -> None:
    logits, labels = world(rows, classes)
    calibrator = CALIBRATORS[method]().fit(logits, labels)
    fresh, _ = world(200, classes, seed=1)
    seen = np.concatenate([fresh, logits[:100]])
    expected = calibrator.predict_proba(seen)
    alone = np.concatenate([calibrator.predict_proba(row[None]) for row in seen])
    assert (calibrator._stacked is not None) == (calibrator._points() > 0)
    np.testing.assert_array_equal(alone, expected)
    together = [calibrator.predict_proba(seen[start : start + 30]) for start in range(0, len(seen), 30)]
    np.testing.assert_array_equal(np.concatenate(together), expected)
    again = pickle.loads(pickle.dumps(calibrator))
    np.testing.assert_array_equal(again.predict_proba(seen[:9]), expected[:9])
    calibrator.fit(logits[:30], labels[:30])
    other = CALIBRATORS[method]().fit(logits[:30], labels[:30]).predict_proba(seen)
    np.testing.assert_array_equal(calibrator.predict_proba(seen[:9]), other[:9])


def test_curves_that_take_too_much_memory_are_evaluated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = world(300, 3)
    calibrator = CALIBRATORS["isotonic"]().fit(logits, labels)
    expected = calibrator.predict_proba(logits[:4])
    monkeypatch.setattr(one_vs_rest, "_MOST_STACKED", 10)
    slow = CALIBRATORS["isotonic"].from_dict(calibrator.to_dict())
    np.testing.assert_array_equal(slow.predict_proba(logits[:4]), expected)
    assert slow._stacked is None


def test_lines_together_are_those_of_interpolate() -> None:
    draw = np.random.default_rng(2)
    inputs = [np.sort(draw.random(size)) for size in (1, 2, 5, 400)]
    outputs = [draw.random(len(each)) for each in inputs]
    lines = StackedLines(inputs, outputs)
    values = np.concatenate([draw.random((300, 4)), np.zeros((1, 4)), np.ones((1, 4))])
    values[:5] = inputs[2][:, None]
    found = lines(values)
    assert found is not None
    expected = [interpolate(values[:, curve], inputs[curve], outputs[curve]) for curve in range(4)]
    if INTERP_ROUNDS_EACH_STEP:
        np.testing.assert_array_equal(found.T, expected)
    np.testing.assert_allclose(found.T, expected, rtol=1e-15, atol=1e-15)


def test_lines_that_would_round_otherwise_are_evaluated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where `numpy.interp` was compiled with fused multiply-adds."""
    monkeypatch.setattr("calibrators.methods.isotonic_curves.INTERP_ROUNDS_EACH_STEP", False)
    logits, labels = world(300, 3)
    calibrator = CALIBRATORS["isotonic"]().fit(logits, labels)
    alone = np.concatenate([calibrator.predict_proba(row[None]) for row in logits])
    np.testing.assert_array_equal(alone, calibrator.predict_proba(logits))
    assert calibrator._stacked is None


def test_a_stack_is_not_pickled() -> None:
    logits, labels = world(300, 3)
    calibrator = CALIBRATORS["bbq"]().fit(logits, labels)
    before = pickle.dumps(calibrator)
    calibrator.predict_proba(logits[:1])
    assert pickle.dumps(calibrator) == before


def test_a_slope_that_overflows_is_left_to_interpolate() -> None:
    steep = StackedLines([np.array([0.0, 5e-324, 1.0])] * 3, [np.array([0.0, 1.0, 1.0])] * 3)
    assert steep(np.zeros((1, 3))) is None


def test_one_curve() -> None:
    steps = StackedSteps([np.array([0.0, 1.0])], [np.array([5.0, 6.0, 7.0])], "left")
    assert steps(np.array([[-1.0], [0.0], [0.5], [2.0]])).tolist() == [[5], [5], [6], [7]]


def test_places_in_curves_of_any_size() -> None:
    inputs = [np.array([]), np.array([0.0]), np.array([-2.0, -1.0, 3.0]), np.array([])]
    search = StackedInputs(inputs)
    values = np.array([[0.0, 0.0, -1.0, 7.0], [-9.0, -0.0, 9.0, -7.0]])
    assert search.below(values, "left").tolist() == [[0, 0, 1, 0], [0, 0, 3, 0]]
    assert search.below(values, "right").tolist() == [[0, 1, 2, 0], [0, 1, 3, 0]]
