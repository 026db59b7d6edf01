"""Times: int64 microseconds since the epoch (UTC) inside, ISO 8601 outside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_DURATION = re.compile(r"(\d{1,6})([smhdw])")
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
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


def duration_us(text: str) -> int:
    """Return a duration such as 90d, 12h, 30m or 45s in microseconds.

    Raises:
        ValueError: The text is not a duration.

    >>> duration_us("12h")
    43200000000
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write 90d, 12h, 30m or 45s")
    return int(match[1]) * _UNITS_S[match[2]] * 1_000_000
