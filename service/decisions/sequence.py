"""Order in which candidate thresholds are tested, and the choice of one.

Candidates are ordered from the safest to the boldest, before the rows that test them are seen.
`docs/explanation/statistics.md` explains why the level holds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from service.decisions.binomial import critical_errors

BAND_POINTS: Final = 25
"""Number of candidates that later looks at the same rows test, all at once."""


def choose_start(
    expected: NDArray[np.float64],
    fit_errors: NDArray[np.float64],
    fit_rows: NDArray[np.float64],
    tolerance: float,
    level: float,
    wrong: int = 0,
) -> int:
    """Return the candidate that is most likely to be certified, judged from fit rows only.

    Args:
        expected: Expected number of test rows at or above each candidate, shape (G,), G ≥ 1.
        fit_errors: Errors among the fit rows at or above it, shape (G,).
        fit_rows: Fit rows at or above it, shape (G,).
        tolerance: Largest error rate that keeps the promise.
        level: Level of the test.
        wrong: Labels that may be wrong, each of which the test counts as an error.

    Returns:
        Index of the candidate with the largest predicted power; if no test can succeed, of the closest one.
    """
    rows = np.rint(expected).astype(np.int64)
    rate = (fit_errors + 0.5) / (fit_rows + 1.0)
    critical = critical_errors(rows, tolerance, level) - wrong
    power = np.where(critical >= 0, scipy.special.bdtr(np.maximum(critical, 0), np.maximum(rows, 1), rate), 0.0)
    if power.max() > 0:
        return int(power.argmax())
    rate = np.minimum(rate + wrong / np.maximum(rows, 1), 1 - 1e-9)
    return int(((tolerance - rate) * np.sqrt(rows / (rate * (1 - rate)))).argmax())


def walk(
    n: NDArray[np.int64], errors: NDArray[np.int64], start: int, tolerance: float, level: float
) -> NDArray[np.intp]:
    """Test candidates from a start, each bolder than the one before, until the first failure.

    Args:
        n: Test rows of each candidate, in test order, shape (G,) or (…, G).
        errors: Errors among them, shape (…, G).
        start: Index of the first test.
        tolerance: Largest error rate q that keeps the promise.
        level: Level of each test, and of the whole sequence.

    Returns:
        Index of the last candidate that succeeds, −1 if the first fails, shape (…).

    Example:
        >>> walk(np.array([10, 60, 80, 90, 300]), np.array([0, 0, 0, 9, 0]), 1, 0.05, 0.05)
        array(2)
    """
    failed = errors[..., start:] > critical_errors(n[..., start:], tolerance, level)
    steps = np.where(failed.any(axis=-1), failed.argmax(axis=-1), failed.shape[-1])
    return np.asarray(np.where(steps > 0, start + steps - 1, -1))


def choose_in_band(n: NDArray[np.int64], errors: NDArray[np.int64], tolerance: float, share: float) -> NDArray[np.intp]:
    """Test `BAND_POINTS` candidates at once, and choose the boldest that succeeds.

    Each test has level share/`BAND_POINTS`: with probability 1 − share none succeeds falsely, for any promise and any
    way of choosing it.

    Args:
        n: Test rows of each candidate, in test order, shape (G,) or (…, G); G ≥ 1.
        errors: Errors among them, shape (…, G).
        tolerance: Largest error rate q that keeps the promise.
        share: Level of all tests together.

    Returns:
        Index of the boldest candidate that succeeds, −1 if none does, shape (…).
    """
    points = band(n.shape[-1])
    succeeded = errors[..., points] <= critical_errors(n[..., points], tolerance, share / BAND_POINTS)
    boldest = points[BAND_POINTS - 1 - succeeded[..., ::-1].argmax(axis=-1)]
    return np.asarray(np.where(succeeded.any(axis=-1), boldest, -1))


def band(candidates: int) -> NDArray[np.intp]:
    """Return the indices of the candidates that later looks test, evenly spaced; few candidates are repeated."""
    return np.linspace(0, candidates - 1, BAND_POINTS).round().astype(np.intp)
