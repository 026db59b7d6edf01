"""In which order candidates are tested, and which one is taken.

Candidates stand from the one that keeps a promise most surely to the one that risks it most: the order is fixed before
the rows that test are seen. `docs/statistics.md` says why the level holds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from service.decisions.binomial import critical_errors

BAND_POINTS: Final = 25
"""Candidates that later looks at the same rows may choose from, all tested at once."""


def choose_start(
    expected: NDArray[np.float64],
    fit_errors: NDArray[np.float64],
    fit_rows: NDArray[np.float64],
    tolerance: float,
    level: float,
) -> int:
    """Return the candidate at which a certificate is most likely to succeed, judged from fit rows alone.

    Args:
        expected: Expected number of test rows at or above each candidate, shape (G,), G ≥ 1.
        fit_errors: Errors among fit rows there, shape (G,).
        fit_rows: Fit rows there, shape (G,).
        tolerance: Error rate at the edge of the promise.
        level: Level of the test.

    Returns:
        Index of the candidate with the largest predicted power; where no test can succeed, the one that comes closest.
    """
    rows = np.rint(expected).astype(np.int64)
    rate = (fit_errors + 0.5) / (fit_rows + 1.0)
    critical = critical_errors(rows, tolerance, level)
    power = np.where(critical >= 0, bdtr(np.maximum(critical, 0), np.maximum(rows, 1), rate), 0.0)
    if power.max() > 0:
        return int(power.argmax())
    return int(((tolerance - rate) * np.sqrt(rows / (rate * (1 - rate)))).argmax())


def walk(
    n: NDArray[np.int64], errors: NDArray[np.int64], start: int, tolerance: float, level: float
) -> NDArray[np.intp]:
    """Test candidates from a start on, each bolder than the one before, until the first failure.

    Args:
        n: Test rows of each candidate, in the order of the tests, shape (G,), or (…, G).
        errors: Errors among them, shape (…, G).
        start: Index of the first test.
        tolerance: Error rate q at the edge of the promise.
        level: Level of each test; the whole sequence has it too.

    Returns:
        Index of the last candidate that succeeded, −1 where the first fails, shape (…).

    Example:
        >>> walk(np.array([10, 60, 80, 90, 300]), np.array([0, 0, 0, 9, 0]), 1, 0.05, 0.05)
        array(2)
    """
    failed = errors[..., start:] > critical_errors(n[..., start:], tolerance, level)
    steps = np.where(failed.any(axis=-1), failed.argmax(axis=-1), failed.shape[-1])
    return np.asarray(np.where(steps > 0, start + steps - 1, -1))


def choose_in_band(n: NDArray[np.int64], errors: NDArray[np.int64], tolerance: float, share: float) -> NDArray[np.intp]:
    """Test `BAND_POINTS` of the candidates at once and take the boldest that succeeds.

    Each test runs at share/`BAND_POINTS`, so that with probability 1 − share none is false, whatever the promise is and
    however it was chosen.

    Args:
        n: Test rows of each candidate, in the order of the tests, shape (G,), or (…, G); G ≥ 1.
        errors: Errors among them, shape (…, G).
        tolerance: Error rate q at the edge of the promise.
        share: Level of the whole band.

    Returns:
        Index of the boldest candidate that succeeded, −1 where none did, shape (…).
    """
    points = band(n.shape[-1])
    succeeded = errors[..., points] <= critical_errors(n[..., points], tolerance, share / BAND_POINTS)
    boldest = points[BAND_POINTS - 1 - succeeded[..., ::-1].argmax(axis=-1)]
    return np.asarray(np.where(succeeded.any(axis=-1), boldest, -1))


def band(candidates: int) -> NDArray[np.intp]:
    """Return the indices of the candidates that a later look tests, evenly spread; some twice where there are few."""
    return np.linspace(0, candidates - 1, BAND_POINTS).round().astype(np.intp)
