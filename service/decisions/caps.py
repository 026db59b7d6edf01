"""How much a refit may change: shares of rows, a ratio of shares, and how far probabilities move."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from service.decisions.binomial import lower_share, p_value, upper_share

CapName = Literal["flipped", "flag_rate", "flag_rate_ratio", "probability_change"]

QUANTILE: Final = 0.99
"""Share of the rows whose largest change of a probability is bounded."""


@dataclass(frozen=True, slots=True)
class Cap:
    """Something that a refit changes on recent rows, and how much it may.

    Attributes:
        name: "flipped", the share of rows that get another action than before; "flag_rate", the share that gets the
            action of the policy's first band; "flag_rate_ratio", that share after over that before;
            "probability_change", what the largest change of any class's probability does not exceed in 99 % of rows.
        policy: Whose decisions these are; None for probabilities.
        count: Rows that are meant: changed, flagged, flagged after; for probabilities those that change at all.
        of: All rows, one of each group; for the ratio, those flagged before.
        value: What was seen: the share, the ratio (infinite where nothing was flagged before), the largest change.
        upper: Upper bound of the same in the population; for probabilities of the 99 % quantile.
        at_most: What the bound must not exceed; None when nothing is asked.
    """

    name: CapName
    policy: str | None
    count: int
    of: int
    value: float
    upper: float
    at_most: float | None

    @property
    def holds(self) -> bool:
        """Whether the bound is within the cap."""
        return self.at_most is None or self.upper <= self.at_most

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document; what is infinite is None."""
        finite = {key: getattr(self, key) if math.isfinite(getattr(self, key)) else None for key in ("value", "upper")}
        return asdict(self) | finite | {"holds": self.holds}


def share_cap(
    name: Literal["flipped", "flag_rate"], policy: str, rows: NDArray[np.bool_], level: float, at_most: float | None
) -> Cap:
    """Bound a share of rows, exactly (Clopper and Pearson 1934)."""
    count, of = int(rows.sum()), len(rows)
    return Cap(name, policy, count, of, count / of if of else 0.0, upper_share(count, of, level), at_most)


def ratio_cap(
    policy: str, before: NDArray[np.bool_], after: NDArray[np.bool_], level: float, at_most: float | None
) -> Cap:
    """Bound the flag rate after over that before.

    Among the rows that are flagged by either, let a share β be flagged before only and γ after only. The ratio is
    (1 − β)/(1 − γ). Given how many such rows there are, both counts are binomial: an exact lower bound of β and an
    exact upper bound of γ, each at half of the level, give an upper bound of the ratio. Rows that both sides flag count
    for it, so that a refit that changes little is bounded closely.

    Args:
        policy: Whose flags these are.
        before: Whether the active revision flags each row, shape (N,), one row of each group.
        after: Whether the candidate does.
        level: Probability that the bound lies below the ratio, at most.
        at_most: The cap.

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
    return Cap("flag_rate_ratio", policy, now, was, value, upper, at_most)


def change_cap(changes: NDArray[np.floating[Any]], level: float, at_most: float | None) -> Cap:
    """Bound what the largest change of a probability does not exceed in 99 % of the rows, from order statistics.

    The bound is the smallest change seen that at least 99 % of the population stays within, at this level; it is 1
    where there are too few rows (368 at a level of 2.5 %) for any. The
    supremum over rows that were not seen has no bound.

    Args:
        changes: Largest absolute change of any class's probability in each row, shape (N,), one row of each group.
        level: Probability that the bound lies below the quantile, at most.
        at_most: The cap.
    """
    ordered, rows = np.sort(changes.astype(np.float64)), len(changes)
    # With k rows above, the bound fails only if no more than k of n lie above the quantile, of which 1 % do.
    above = p_value(np.arange(rows), np.full(rows, rows), 1 - QUANTILE) <= level
    spare = int(above.sum())  # so many of the largest may be left out, and one more
    upper = float(ordered[rows - spare]) if spare else 1.0
    largest = float(ordered[-1]) if rows else 0.0
    return Cap("probability_change", None, int((ordered > 0).sum()), rows, largest, upper, at_most)
