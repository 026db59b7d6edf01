from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from calibrators import CalibrationDataError, logits_from_probabilities, softmax


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
    logits = logits_from_probabilities(probabilities)
    assert logits[0, 0] == -np.inf
    np.testing.assert_allclose(softmax(logits), probabilities, atol=1e-15)
    assert logits_from_probabilities(probabilities.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(softmax(logits_from_probabilities(probabilities * 7)), probabilities, atol=1e-15)


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
