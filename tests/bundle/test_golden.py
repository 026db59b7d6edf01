"""Golden logits agree with what another machine gives, up to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from bundle import Golden


@pytest.mark.parametrize(
    ("column", "change", "agrees"),
    [(0, 1e-3, True), (0, 1e-2, False), (1, 1e-2, True), (1, 1e-1, False)],
)
def test_tiny_probabilities_may_round_by_more(column: int, change: float, agrees: bool) -> None:
    golden = Golden(np.zeros((1, 1), np.float32), np.array([[0.0, -20.0, 0.0]], np.float32))
    logits = golden.logits.copy()
    logits[0, column] += change
    assert (golden.difference(logits) is None) == agrees


def test_a_large_network_may_round_by_more_in_a_batch_than_alone() -> None:
    """As the 214 probabilities of the file types of magika 1.0.3: 1.05e-5 apart, and 0.0096 in a logit of -20.6."""
    golden = Golden(np.zeros((1, 1), np.float32), np.array([[0.0, -5.5, -20.6]], np.float32))
    assert golden.difference(golden.logits + np.float32([0, 0.0075, 0.0096])) is None
    assert golden.difference(golden.logits + np.float32([0, 0.04, 0])) is not None


def test_a_wrong_shape_is_said() -> None:
    golden = Golden(np.zeros((1, 1), np.float32), np.zeros((1, 2), np.float32))
    found = golden.difference(np.zeros((1, 3), np.float32))
    assert found is not None
    assert (found.found, found.expected) == ([1, 3], [1, 2])
