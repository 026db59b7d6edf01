from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from calibrators import CalibrationDataError, logits_from_probabilities, softmax
from calibrators.chunks import raise_to_floor
from calibrators.softmax import PROBABILITY_FLOOR


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
def test_agrees_with_scipy(scale, world):
    logits, _ = world(300, 7)
    np.testing.assert_allclose(softmax(logits * scale), special.softmax(logits * scale, axis=1), atol=1e-15)


def test_float32_is_rounded_once(world):
    logits, _ = world(300, 7, dtype=np.float32)
    np.testing.assert_array_equal(softmax(logits), softmax(logits.astype(np.float64)).astype(np.float32))


def test_many_chunks_agree_with_one(world):
    logits, _ = world(3, 70_000)
    np.testing.assert_allclose(softmax(logits), special.softmax(logits, axis=1), atol=1e-15)
    assert softmax(np.zeros((100_000, 2))).tolist()[-1] == [0.5, 0.5]


def test_probabilities_come_back():
    probabilities = np.array([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    logits = logits_from_probabilities(probabilities, floor=0)
    assert logits[0, 0] == -np.inf
    np.testing.assert_allclose(softmax(logits), probabilities, atol=1e-15)
    assert logits_from_probabilities(probabilities.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(softmax(logits_from_probabilities(probabilities * 7, 0)), probabilities, atol=1e-15)


def test_zeros_are_raised_to_the_stated_floor():
    probabilities = np.array([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [1e-7, 0.5, 0.5]])
    for scale in (1, 7):
        expected = np.log(scale * np.maximum(probabilities, PROBABILITY_FLOOR / 3))
        np.testing.assert_allclose(logits_from_probabilities(scale * probabilities), expected, atol=1e-7)
    assert softmax(logits_from_probabilities(probabilities, 0.03)).min() == pytest.approx(0.01, rel=0.03)
    for floor in (-1e-9, 1.1, np.nan, "0", True):
        with pytest.raises(CalibrationDataError, match="floor"):
            logits_from_probabilities(probabilities, floor)


def test_shares_below_a_floor_are_raised_in_place_and_keep_their_order():
    logits = np.array([[0.0, -1.0, -50.0, -np.inf], [1e6, 0.0, -1e300, 5.0]])
    raised = raise_to_floor(logits.copy(), logits.max(axis=1, keepdims=True), 0.001)
    shares = np.exp(raised - special.logsumexp(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(shares, np.maximum(special.softmax(logits, axis=1), 0.001), rtol=1e-9)
    margins = np.stack([np.zeros(2001), np.linspace(-30, 30, 2001)], axis=1)
    moved = raise_to_floor(margins.copy(), margins.max(axis=1, keepdims=True), 1e-4)
    assert (np.diff(moved[:, 1] - moved[:, 0]) >= -1e-14).all()


@pytest.mark.parametrize("row", [[-0.1, 1.1], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_what_is_no_distribution_is_refused(row):
    with pytest.raises(CalibrationDataError, match=r"probabilities\[1, \d\]"):
        logits_from_probabilities([[0.5, 0.5], row])


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([1.0, 2.0], "shape"),
        ([[1.0]], "2 columns"),
        ([["a", "b"]], "type"),
        ([[1j, 0]], "type"),
        ([[True, False]], "type"),
    ],
)
def test_what_is_no_matrix_is_refused(values, match):
    with pytest.raises(CalibrationDataError, match=match):
        softmax(values)


def test_integers_are_logits_too():
    assert softmax([[0, 0]]).tolist() == [[0.5, 0.5]]


def test_out_may_be_the_input_and_no_other_view_of_its_memory(world):
    logits, _ = world(400, 4)
    expected = softmax(logits)
    for make in (lambda z: z, lambda z: z[:], lambda z: z.view()):
        same = logits.copy()
        np.testing.assert_array_equal(softmax(same, out=make(same)), expected)
    # Beside the input in one buffer, and between its entries.
    wide = np.concatenate([logits, logits], axis=1)
    np.testing.assert_array_equal(softmax(wide[:, :4], out=wide[:, 4:]), expected)
    pairs = np.repeat(logits, 2, axis=1)
    np.testing.assert_array_equal(softmax(pairs[:, ::2], out=pairs[:, 1::2]), expected)
    np.testing.assert_array_equal(softmax(expected.T.copy().T, out=np.empty((4, 400)).T), softmax(expected))
    buffer = np.concatenate([logits, logits[:5]])
    square = logits[:4].copy()
    single = np.zeros((400, 8), np.float32)
    for given, out in (
        (logits, logits[::-1]),
        (buffer[:400], buffer[5:]),
        (buffer[5:], buffer[:400]),
        (square, square.T),
        (logits[:, ::-1], logits),
        (single.view(np.float16)[:, :8], single),
    ):
        before = np.array(given)
        with pytest.raises(CalibrationDataError, match="another view of the memory"):
            softmax(given, out=out)
        np.testing.assert_array_equal(given, before)


def test_a_read_only_out_is_refused(world):
    logits, _ = world(10, 3)
    out = np.empty_like(logits)
    out.setflags(write=False)
    with pytest.raises(CalibrationDataError, match="read-only"):
        softmax(logits, out=out)
