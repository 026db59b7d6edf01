"""Times are int64 microseconds since the epoch, UTC; outside they are ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
