"""An upper bound of the calibration error over fixed bins that holds for any number of independent rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.decisions.binomial import upper_shares

EDGES: Final = (0.0, 0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.98, 1.0)
"""Edges of the bins of the stated probability; narrow where events are rare or nearly certain."""

_SHARE: Final = 0.2
"""Share of the level for the bins' masses, and for their mean stated probabilities; rates of events get the rest."""


def upper_error(stated: NDArray[Any], event: NDArray[np.bool_], level: float) -> float:
    """Return an upper bound of the root of the mean squared calibration error over `EDGES`.

    That error is the root of Σ mass · gap²; a bin's gap is its rate of events less its mean stated probability, in the
    population. All parts hold together. A bin's rate has exact binomial bounds, its mean stated probability Hoeffding's
    bounds within the edges; without rows, the gap is the largest that the edges allow. With gaps sorted downwards,
    Σ mass · gap² = Σ (gap²ₖ − gap²ₖ₊₁) · mass of the first k bins. Each of the 2ᴮ sets of B bins has an exact binomial
    bound of its mass, so the rows may choose the order, and regions without rows cost what they may hide.

    Args:
        stated: Stated probabilities of independent rows, shape (N,).
        event: Whether each row has the event, shape (N,).
        level: Maximum probability in (0, 1) that the bound is below the error.

    Returns:
        A bound in [0, 1]; 1 without rows.

    References:
        Hoeffding, W. (1963). Probability inequalities for sums of bounded random variables. JASA 58, 13–30.
        Clopper and Pearson (1934): see `upper_share`.

    Example:
        >>> event = np.arange(1000) % 10 == 0
        >>> round(upper_error(np.full(1000, 0.1), event, 0.025), 2), upper_error(np.zeros(0), event[:0], 0.025)
        (0.12, 1.0)
    """
    low, high = np.array(EDGES[:-1]), np.array(EDGES[1:])
    bins = len(low)
    at = np.searchsorted(high[:-1], stated, side="right")
    rows, events = np.bincount(at, minlength=bins), np.bincount(at, event, bins)
    some = np.maximum(rows, 1)
    mean = np.bincount(at, stated, bins) / some
    slack = np.where(rows > 0, (high - low) * np.sqrt(np.log(2 * bins / (_SHARE * level)) / (2 * some)), 1.0)
    tail = (1 - 2 * _SHARE) * level / (2 * bins)
    above = upper_shares(events, rows, tail) - np.maximum(mean - slack, low)
    below = np.minimum(mean + slack, high) - (1.0 - upper_shares(rows - events, rows, tail))
    worst = np.maximum(above, below) ** 2
    order = np.argsort(-worst)
    mass = upper_shares(np.cumsum(rows[order]), len(stated), _SHARE * level / 2**bins)
    return float(np.sqrt(-np.diff(worst[order], append=0.0) @ mass))
