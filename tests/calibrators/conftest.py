"""Worlds whose true probabilities are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

World = Callable[..., tuple[np.ndarray, np.ndarray]]


@pytest.fixture(scope="session")
def world() -> World:
    """Draws logits (N, K) and labels whose true probabilities are softmax(logits / temperature)."""

    def draw(
        rows: int, classes: int, temperature: float = 1.0, seed: int = 0, dtype: type = np.float64, spread: float = 2.0
    ) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, spread, (rows, classes)).astype(dtype)
        noise = rng.gumbel(size=(rows, classes))
        return logits, np.argmax(logits.astype(np.float64) / temperature + noise, axis=1)

    return draw
