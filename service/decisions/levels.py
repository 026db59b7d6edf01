"""Levels of monitors, which share one probability of a false alarm."""

from __future__ import annotations

from service.decisions.numbers import number, whole


def level_of(alpha: float, k: int) -> float:
    """Return the level of the k-th monitor, α/(k(k + 1)).

    Monitors are numbered in the order in which they start, including monitors of parallel streams and those restarted
    after an alarm. Since Σ 1/(k(k + 1)) = 1, the probability that any monitor ever gives a false alarm is at most α.

    Args:
        alpha: Probability in (0, 1) of any false alarm.
        k: Number of the monitor, from 1.

    Raises:
        InputValueError: `alpha` or `k` is out of range.

    Example:
        >>> level_of(0.05, 1), level_of(0.05, 4)
        (0.025, 0.0025)
    """
    place = whole(k, "k", least=1)
    return number(alpha, "alpha", above=0.0, below=1.0) / (place * (place + 1))
