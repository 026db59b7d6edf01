"""Price of a chosen window: the number of windows among which it counts as the best.

A caller who chooses `since` or `until` may know the labels, and choose the luckiest rows. So the error probability of a
look is shared among all windows that could have been chosen, near ones getting larger parts. Without a choice, the
window follows a rule, and nothing is shared. `docs/explanation/statistics.md` has the argument.
"""

from __future__ import annotations

from typing import Final

_UNITS_US: Final = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1)


def windows(since_us: int | None, until_us: int | None, *, at_us: int, rows: int) -> float:
    """Return the divisor of a look's level; 1 without a choice.

    Args:
        since_us: Chosen start, in microseconds since the epoch; None without one.
        until_us: Chosen end; None, or a time that has not come, without one.
        at_us: Time of the look.
        rows: Certify rows in the window.

    Example:
        >>> day = 86_400_000_000
        >>> windows(None, None, at_us=30 * day, rows=300), windows(28 * day, None, at_us=30 * day, rows=300)
        (1.0, 144.0)
    """
    if until_us is not None and until_us >= at_us:
        until_us = None
    if since_us is None and until_us is None:
        return 1.0
    found = 3.0  # a start, an end, or both
    if since_us is not None:
        found *= 2 * min(_share(max(rows, 1)), _by_clock(since_us, at_us))
    if until_us is not None:
        found *= _by_clock(until_us, at_us)
    return found


def _by_clock(end_us: int, at_us: int) -> float:
    """Return the inverse part of one end among all times before now, rounder ones first."""
    rank, unit = next((rank, unit) for rank, unit in enumerate(_UNITS_US, start=1) if end_us % unit == 0)
    return 2.0**rank * _share(max(-((end_us - at_us) // unit), 1))


def _share(number: int) -> float:
    """Return the inverse of the part of a whole number from 1; all parts together are 1.

    A power of two gets 1/((j + 1)(j + 2)), shared among the 2^j numbers up to the next one.
    """
    j = number.bit_length() - 1
    return float((j + 1) * (j + 2) * 2**j)
