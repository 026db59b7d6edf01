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
