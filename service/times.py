"""Times: int64 microseconds since the epoch (UTC) inside, ISO 8601 outside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

DAY_US: Final = 86_400_000_000
_DURATION = re.compile(r"(\d{1,6})([smhdw])")
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST_S = 99_999 * 604_800  # as in policies: from now until a year that times can have
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def iso(us: int) -> str:
    """Return a time as ISO 8601 in UTC.

    >>> iso(1_700_000_000_000_000)
    '2023-11-14T22:13:20.000000Z'
    """
    return (_EPOCH + us * _MICROSECOND).isoformat(timespec="microseconds").replace("+00:00", "Z")


def microseconds(time: datetime) -> int:
    """Return an aware time as microseconds since the epoch.

    >>> microseconds(datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC))
    1700000000000000
    """
    return (time - _EPOCH) // _MICROSECOND


def start_of_year_us(us: int) -> int:
    """Return the start of a time's calendar year (UTC), in microseconds since the epoch.

    >>> iso(start_of_year_us(1_700_000_000_000_000))
    '2023-01-01T00:00:00.000000Z'
    """
    return microseconds(datetime((_EPOCH + us * _MICROSECOND).year, 1, 1, tzinfo=UTC))


def duration_us(text: str) -> int:
    """Return a duration such as 90d, 12h, 30m or 45s in microseconds.

    Raises:
        ValueError: The text is not a duration, or longer than 99,999 weeks.

    >>> duration_us("12h")
    43200000000
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write 90d, 12h, 30m or 45s")
    if (seconds := int(match[1]) * _UNITS_S[match[2]]) > _LONGEST_S:
        raise ValueError(f"{text!r} is too long: the maximum is 99999w")
    return seconds * 1_000_000


def spoken(seconds: float) -> str:
    """Return a time span in the unit that fits.

    >>> spoken(12.34), spoken(5400), spoken(1_000_000)
    ('12.3 s', '1.5 h', '11.6 d')
    """
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.3g} s"
