"""Count predictions per hour and per day."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, func, literal, select

from service.state.database import SET_BACK_US, Database
from service.state.partitions import first_id
from service.state.tables import predictions
from service.state.window import origins_of

HOURS: Final = 24
DAYS: Final = 7
"""Whole days of which the busiest one says how many rows a day has."""
MOST_PER_HOUR: Final = 50_000
"""Maximum count of an hour: a chart needs no more, and counting must stay cheap."""

_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_SETTLED_US = 600_000_000  # predictions this old are written to the log


class Traffic:
    """Counts predictions per hour and per day; what is over is counted once.

    Args:
        database: Open state.
        sample: Share of the predictions that the log has, in (0, 1].
    """

    def __init__(self, database: Database, sample: float = 1.0) -> None:
        self._database = database
        self._sample = sample
        self._over: dict[tuple[str, int], int] = {}
        self._days: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def hours(self, model: str, now_us: int) -> list[int]:
        """Return the predictions of each of the last `HOURS` hours, the current one last; maximum `MOST_PER_HOUR`.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        present = now_us // _HOUR_US
        wanted = range(present - HOURS + 1, present + 1)
        with self._lock:
            known = {hour: count for hour in wanted if (count := self._over.get((model, hour))) is not None}
        with self._database.connect() as connection:
            ids = origins_of(connection, model)
            found = {hour: _count(connection, ids, hour) for hour in wanted if hour not in known}
        settled = {hour: count for hour, count in found.items() if (hour + 1) * _HOUR_US + _SETTLED_US <= now_us}
        with self._lock:
            self._over = {key: count for key, count in self._over.items() if key[1] >= wanted[0]}
            self._over |= {(model, hour): count for hour, count in settled.items()}
        return [(known | found)[hour] for hour in wanted]

    def rows_per_day(self, model: str, now_us: int) -> int | None:
        """Return the predictions of the busiest of the last `DAYS` whole days (UTC); None if none has any.

        The day of the model's first prediction is not a whole one.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        present = now_us // _DAY_US
        wanted = range(present - DAYS, present)
        with self._lock:
            known = {day: count for day in wanted if (count := self._days.get((model, day))) is not None}
        with self._database.connect() as connection:
            ids = origins_of(connection, model)
            found = _per_day(connection, ids, [day for day in wanted if day not in known])
            counts = known | found
            busy = [day for day in wanted if counts[day]]
            if busy and not _any_before(connection, ids, busy[0]):
                del busy[0]
        settled = {day: count for day, count in found.items() if (day + 1) * _DAY_US + _SETTLED_US <= now_us}
        with self._lock:
            self._days = {key: count for key, count in self._days.items() if key[1] >= wanted[0]}
            self._days |= {(model, day): count for day, count in settled.items()}
        return math.ceil(max(counts[day] for day in busy) / self._sample) if busy else None


def _count(connection: Connection, ids: list[int], hour: int) -> int:
    within = (predictions.c.created_at >= hour * _HOUR_US, predictions.c.created_at < (hour + 1) * _HOUR_US)
    rows = select(literal(1)).where(predictions.c.origin.in_(ids), *within).limit(MOST_PER_HOUR).subquery()
    return int(connection.execute(select(func.count()).select_from(rows)).scalar_one())


def _per_day(connection: Connection, ids: list[int], days: Collection[int]) -> dict[int, int]:
    if not days:
        return {}
    since, until = min(days) * _DAY_US, (max(days) + 1) * _DAY_US
    day = (predictions.c.created_at // _DAY_US).label("day")
    within = (
        predictions.c.id >= first_id(max(since - SET_BACK_US, 0)),  # leaves PostgreSQL the partitions of these days
        predictions.c.created_at >= since,
        predictions.c.created_at < until,
    )
    rows = connection.execute(select(day, func.count()).where(predictions.c.origin.in_(ids), *within).group_by(day))
    counted = {int(day): int(count) for day, count in rows}
    return {day: counted.get(day, 0) for day in days}


def _any_before(connection: Connection, ids: list[int], day: int) -> bool:
    earlier = (predictions.c.origin.in_(ids), predictions.c.created_at < day * _DAY_US)
    return connection.execute(select(literal(1)).where(*earlier).limit(1)).first() is not None
