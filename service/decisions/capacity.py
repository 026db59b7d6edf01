"""Which rows people review when they cannot review all: some by rank, some at random, each with a known probability.

A day's capacity K is split: ρK rows are drawn at random, the others have the highest priority. Rows arrive in a stream,
so the plan of an hour is made before its rows: a cut in the priority that the rest of the day should fill, judged by
earlier rows, and a share for the random draw. A row is sought with probability

    p = s + (1 − s) q,    s = 1 above the cut, a share at the cut, 0 below;    q = ρK / max(rows of the day before, n)

where n counts the rows of the day up to this one. Both parts are functions of priorities, times and draws of earlier
rows, never of a label, so p is the propensity given all that was known: weights 1/p are unbiased.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

HOURS_OF_DAY: Final = 24
_SHIFT: Final = 19  # keeps 4 bits of a float32's fraction: 16 bins an octave
_LARGEST: Final = 1e30


def bins_of(priority: NDArray[np.floating[Any]]) -> list[int]:
    """Return integers that sort as priorities do, equal for those that differ by less than about 6 %.

    Args:
        priority: Shape (N,), not negative; NaN counts as 0.

    Example:
        >>> bins_of(np.array([0.0, 1.0, 1.01, 2.0]))
        [0, 2032, 2032, 2048]
    """
    values = np.clip(np.nan_to_num(np.asarray(priority, np.float64)), 0.0, _LARGEST).astype(np.float32)
    found: list[int] = (values.view(np.uint32) >> np.uint32(_SHIFT)).tolist()
    return found


@dataclass(slots=True)
class Hour:
    """The plan of an hour, and what has come of it.

    Attributes:
        hour: Hours since the epoch, UTC.
        slots: Maximum rows to select by rank in this hour.
        cut: Bin at the cut; rows in higher bins are selected.
        tie: Share of the rows in this bin that are selected.
        usual: Rows of the day before.
        before: Rows of this day before this hour.
        rows: Rows so far.
        ranked: Rows selected by rank so far.
        counts: Rows so far by bin.
    """

    hour: int
    slots: int
    cut: int
    tie: float
    usual: int
    before: int
    rows: int = 0
    ranked: int = 0
    counts: dict[int, int] = field(default_factory=dict)

    def select(
        self, bins: Iterable[int], *, random_slots: float, draw: random.Random, room: float = math.inf
    ) -> tuple[list[float], list[str | None]]:
        """Count rows and return the propensity of each, with why it was selected: "random", "ranked" or None.

        Args:
            bins: From `bins_of`, in the order of the rows.
            random_slots: ρK, rows of a day to draw at random.
            draw: Source of the draws.
            room: Rows of the whole day that may still be selected by rank: hours may get rows in any order.
        """
        propensities, selected = [], []
        last = min(self.slots, self.ranked + room)
        for bin_ in bins:
            self.rows += 1
            self.counts[bin_] = self.counts.get(bin_, 0) + 1
            at_random = min(1.0, random_slots / max(self.usual, self.before + self.rows))
            by_rank = 0.0
            if self.ranked < last:
                by_rank = 1.0 if bin_ > self.cut else self.tie if bin_ == self.cut else 0.0
            propensity = by_rank + (1.0 - by_rank) * at_random
            drawn = draw.random()
            why = "random" if drawn < at_random else "ranked" if drawn < propensity else None
            self.ranked += why == "ranked"
            propensities.append(propensity)
            selected.append(why)
        return propensities, selected


def plan(earlier: Sequence[Hour], hour: int, *, ranked_slots: int) -> Hour:
    """Return the plan of an hour.

    The rest of the day is expected to be as that of the latest day with rows; before a whole day is known, as the known
    hours were. Where fewer rows than slots are expected, all are selected: in this hour at most as many as expected,
    and an equal part of the slots that are left.

    Args:
        earlier: Hours before this one.
        hour: Hours since the epoch, UTC.
        ranked_slots: Rows of a day to select by rank.

    Example:
        >>> day = [Hour(hour, 9, 0, 1.0, 0, 0, rows=100, counts={1: 90, 5: 10}) for hour in range(24)]
        >>> [(one.cut, one.tie) for one in (plan(day, 24, ranked_slots=120), plan(day, 24, ranked_slots=1320))]
        [(5, 0.5), (1, 0.5)]
    """
    day = hour // HOURS_OF_DAY
    left = (day + 1) * HOURS_OF_DAY - hour
    today = [one for one in earlier if one.hour // HOURS_OF_DAY == day]
    yesterday = [one for one in earlier if one.hour // HOURS_OF_DAY == day - 1]
    slots = max(0, ranked_slots - sum(one.ranked for one in today))
    usual, before = (sum(one.rows for one in hours) for hours in (yesterday, today))
    expected, now = _expected(earlier, hour)
    room = float(slots)
    for bin_ in sorted(expected, reverse=True):
        if expected[bin_] > room:
            return Hour(hour, slots, bin_, room / expected[bin_], usual, before)
        room -= expected[bin_]
    return Hour(hour, min(slots, math.ceil(now + room / left)), -1, 1.0, usual, before)


def _expected(earlier: Sequence[Hour], hour: int) -> tuple[Mapping[int, float], float]:
    """Return the rows that are expected from an hour to the end of its day by bin, and those of the hour itself."""
    day = hour // HOURS_OF_DAY
    known = [one for one in earlier if one.rows]
    if not known:
        return {}, 0.0
    first = min(one.hour for one in known)
    latest = max((one.hour // HOURS_OF_DAY for one in known if one.hour // HOURS_OF_DAY < day), default=day)
    if first <= latest * HOURS_OF_DAY or latest < day - 1:  # known as a whole, as far as can be told
        same = hour - (day - latest) * HOURS_OF_DAY
        rest = [one for one in known if same <= one.hour and one.hour // HOURS_OF_DAY == latest]
        return _counts(rest, 1.0), float(sum(one.rows for one in rest if one.hour == same))
    share = 1.0 / (hour - first)
    return _counts(known, share * ((day + 1) * HOURS_OF_DAY - hour)), share * sum(one.rows for one in known)


def _counts(hours: Iterable[Hour], factor: float) -> Mapping[int, float]:
    total: dict[int, float] = {}
    for one in hours:
        for bin_, count in one.counts.items():
            total[bin_] = total.get(bin_, 0.0) + factor * count
    return total
