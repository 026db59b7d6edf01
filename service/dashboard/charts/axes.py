"""Axes that several charts share: log-odds, and time."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

_TICKS = (0.000001, 0.00001, 0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
_US = 1_000_000


def log_odds(share: float) -> float:
    """Return the log-odds of a share, which is kept off 0 and 1.

    Example:
        >>> log_odds(0.5), round(log_odds(0.9), 3)
        (0.0, 2.197)
    """
    share = min(max(share, 1e-7), 1 - 1e-7)
    return math.log(share / (1 - share))


@dataclass(frozen=True, slots=True)
class LogOdds:
    """An axis of shares that is even in log-odds.

    Attributes:
        low: Smallest share on it, above 0.
        high: Largest share on it, below 1.
    """

    low: float
    high: float

    @classmethod
    def around(cls, shares: Iterable[float]) -> Self:
        """Return an axis from the tick below the smallest share above 0 to the tick above the largest below 1."""
        inside = [share for share in shares if 0 < share < 1] or [0.01, 0.5]
        low = min(max(bisect_right(_TICKS, min(inside)) - 1, 0), len(_TICKS) - 2)
        high = min(max(bisect_left(_TICKS, max(inside)), low + 1), len(_TICKS) - 1)
        return cls(_TICKS[low], _TICKS[high])

    def at(self, share: float) -> float:
        """Return the place of a share: 0 at the low end, 1 at the high one; beyond an end, that end.

        Example:
            >>> axis = LogOdds(0.001, 0.5)
            >>> axis.at(0.0), axis.at(0.5), round(axis.at(0.01), 2)
            (0.0, 1.0, 0.33)
        """
        low, high = log_odds(self.low), log_odds(self.high)
        return min(max((log_odds(share) - low) / (high - low), 0.0), 1.0)

    @property
    def ticks(self) -> list[float]:
        """Shares to write at the axis."""
        return [tick for tick in _TICKS if self.low <= tick <= self.high]


def written(share: float) -> str:
    r"""Return a share in percent with as many decimals as it needs.

    Example:
        >>> written(0.001), written(0.5), written(0.999)
        ('0.1\xa0%', '50\xa0%', '99.9\xa0%')
    """
    return f"{100 * share:.6f}".rstrip("0").rstrip(".") + "\N{NO-BREAK SPACE}%"


def moment(us: int, *, days: bool) -> str:
    """Return a time in microseconds as a day, or else as an hour of the day.

    Example:
        >>> moment(1_700_000_000_000_000, days=True), moment(1_700_000_000_000_000, days=False)
        ('11-14', '22:13')
    """
    return datetime.fromtimestamp(us / _US, UTC).strftime("%m-%d" if days else "%H:%M")
