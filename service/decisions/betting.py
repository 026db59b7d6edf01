"""Tests of a mean over groups whose contributions are bounded: capital that bets against a broken promise.

A group contributes X = E − qD: its errors less the tolerated share of its denominator, scaled down to at most M of the
denominator, so X ≤ (1 − q)M. Under the hypothesis "the promise is broken", X has a mean above 0. For every λ from 0 to
1/((1 − q)M) that is fixed before a group is seen, the factor 1 − λX is at least 0 and has a mean of at most 1, so the
product of the factors ever reaches 1/level with a probability of at most the level (Ville 1939).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

Block = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Denominators D and errors E of some groups at each of C candidates, both of shape (groups, C), 0 ≤ E ≤ D."""

_EARLY: Final = 0.25

BETS: Final = 2.0 ** -np.arange(0.0, 10.0)
"""Bets of `mixed`, as shares of 1/M."""


def contribution(
    block: Block, tolerance: float | NDArray[np.float64], limit: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return X of each group, shape (groups, C); a group counts with at most `limit` of its denominator."""
    of, errors = block
    scale = np.minimum(1.0, limit / np.maximum(of, limit))
    return np.asarray((errors - tolerance * of) * scale, np.float64)


def hedged(
    blocks: Iterable[Block],
    groups: NDArray[np.int64],
    tolerance: NDArray[np.float64],
    limit: NDArray[np.float64],
    size: NDArray[np.float64],
    alike: NDArray[np.float64],
    level: float,
) -> NDArray[np.bool_]:
    """Test promises that were fixed before the groups were seen, and return which are shown, shape (C,).

    The bets hedge an option that pays 1/level if the promise is shown by the last group, and nothing otherwise: such a
    test loses little power to one that is exact. Each bet depends on earlier groups only.

    Args:
        blocks: The groups in random order; bets change between blocks.
        groups: Number of groups with a denominator, shape (C,).
        tolerance: Largest error rate q in (0, 1) that keeps the promise, shape (C,).
        limit: Largest denominator M that a group counts with, fixed before the groups were seen, shape (C,).
        size: Guess of the mean denominator of a group, shape (C,); only power depends on it.
        alike: Guess of the number of errors that come together, shape (C,); only power depends on it.
        level: Probability that a broken promise is shown.

    References:
        Waudby-Smith, I. and Ramdas, A. (2024). Estimating means of bounded random variables by betting. JRSS B 86.
        Voráček, V. and Orabona, F. (2025). STaR-Bets: sequential target-recalculating bets for tighter confidence
        intervals. arXiv 2505.22422.
    """
    goal = -np.log(level) if level > 0 else np.inf
    capital, shown = np.zeros(len(limit)), np.zeros(len(limit), np.bool_)
    variance = tolerance * (1.0 - tolerance) * size
    # No bet exceeds 1/limit, so the last groups cannot win the missing capital: the option ends before them.
    left = groups - _EARLY * goal * limit / variance
    deviation = np.sqrt(variance * alike)
    largest = 1.0 / ((1.0 - tolerance) * limit)
    for block in blocks:
        part = np.exp(np.clip(capital - goal, -700.0, -1e-12))
        z = scipy.special.ndtri(part)
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        bet = np.minimum(density / (part * deviation * np.sqrt(np.maximum(left, 1.0))), largest)
        with np.errstate(divide="ignore"):
            grown = np.log1p(np.maximum(-bet * contribution(block, tolerance, limit), -1.0))
        left -= (block[0] > 0).sum(axis=0)
        path = capital + np.cumsum(grown, axis=0)
        shown |= (path >= goal).any(axis=0)
        capital = path[-1]
    return shown


def mixed(
    blocks: Iterable[Block], tolerance: float | NDArray[np.float64], limit: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ln of a capital that is spread over `BETS`, shape (C,).

    It grows with the tolerance, so with probability 1 − level it is below 1/level for *every* tolerance that is below
    the true rate: the promise may be chosen with the groups in view.

    Args:
        blocks: The groups, in any order.
        tolerance: Largest error rate q in (0, 1) that keeps the promise.
        limit: Largest denominator that a group counts with; it must not depend on the tolerance. Shape (C,).
    """
    capital = np.zeros((len(BETS), len(limit)))
    for block in blocks:
        x = contribution(block, tolerance, limit) / limit
        for at, bet in enumerate(BETS):
            capital[at] += np.log1p(-bet * x).sum(axis=0)
    return np.asarray(np.logaddexp.reduce(capital, axis=0) - np.log(len(BETS)), np.float64)
