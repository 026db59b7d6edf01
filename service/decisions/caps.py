"""Limits on what a recalibration changes: shares of rows, a ratio of shares, and changes of probabilities."""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from candor.contract.gate import Cap, CapName
from service.decisions.binomial import lower_share, p_value, upper_share

QUANTILE: Final = 0.99
"""Share of the rows that `change_cap` bounds."""


def bounded(
    name: CapName, policy: str | None, count: int, of: int, value: float, upper: float, at_most: float | None
) -> Cap:
    """Return a cap with whether its bound is within the limit; None stands for an infinite number."""
    return Cap(
        name=name,
        policy=policy,
        count=count,
        of=of,
        value=value if math.isfinite(value) else None,
        upper=upper if math.isfinite(upper) else None,
        at_most=at_most,
        holds=at_most is None or upper <= at_most,
    )


def share_cap(
    name: Literal["flipped", "flag_rate"], policy: str, rows: NDArray[np.bool_], level: float, at_most: float | None
) -> Cap:
    """Bound a share of rows with the exact bound of Clopper and Pearson (1934)."""
    count, of = int(rows.sum()), len(rows)
    return bounded(name, policy, count, of, count / of if of else 0.0, upper_share(count, of, level), at_most)


def ratio_cap(
    policy: str, before: NDArray[np.bool_], after: NDArray[np.bool_], level: float, at_most: float | None
) -> Cap:
    """Bound the flag rate after divided by the flag rate before.

    Of the rows that either side flags, let a share β be flagged only before and a share γ only after. The ratio is
    (1 − β)/(1 − γ). Given the number of such rows, both counts are binomial: an exact lower bound of β and an exact
    upper bound of γ, each at half the level, give an upper bound of the ratio. Rows that both sides flag tighten it, so
    a recalibration that changes little gets a tight bound.

    Args:
        policy: Id of the policy.
        before: Whether the active revision flags each row, shape (N,), one row of each group.
        after: Whether the candidate flags it, shape (N,).
        level: Maximum probability that the bound is below the ratio.
        at_most: The limit; None for none.

    Example:
        >>> flagged = np.arange(1000) < 100
        >>> cap = ratio_cap("auto", flagged, np.arange(1000) < 110, 0.05, 1.5)
        >>> round(cap.value, 3), round(cap.upper, 3), cap.holds
        (1.1, 1.192, True)
    """
    either = int((before | after).sum())
    only_before, only_after = int((before & ~after).sum()), int((after & ~before).sum())
    was, now = int(before.sum()), int(after.sum())
    gained = upper_share(only_after, either, level / 2)
    upper = (1 - lower_share(only_before, either, level / 2)) / (1 - gained) if gained < 1 else math.inf
    value = now / was if was else (math.inf if now else 1.0)
    return bounded("flag_rate_ratio", policy, now, was, value, upper, at_most)


def change_cap(changes: NDArray[np.floating[Any]], level: float, at_most: float | None) -> Cap:
    """Bound the largest change of a probability in 99 % of the rows, from order statistics.

    The bound is the smallest observed change that at least 99 % of the population does not exceed, at this level; 1 if
    there are too few rows (fewer than 368 at a level of 2.5 %). The largest change over all rows has no such bound.

    Args:
        changes: Largest absolute change of any class's probability in each row, shape (N,), one row of each group.
        level: Maximum probability that the bound is below the quantile.
        at_most: The limit; None for none.
    """
    ordered, rows = np.sort(changes.astype(np.float64)), len(changes)
    # With k rows above the bound, it fails only if at most k of n rows are above the quantile, which 1 % of rows are.
    above = p_value(np.arange(rows), np.full(rows, rows), 1 - QUANTILE) <= level
    spare = int(above.sum())  # this many of the largest changes can be above the bound, plus one
    upper = float(ordered[rows - spare]) if spare else 1.0
    largest = float(ordered[-1]) if rows else 0.0
    return bounded("probability_change", None, int((ordered > 0).sum()), rows, largest, upper, at_most)
