"""Count predictions per hour and per day."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, func, literal, select

from service.state.database import Database
from service.state.insertion import insert_for
from service.state.tables import daily_rows, predictions
from service.state.window import origins_of

HOURS: Final = 24
DAYS: Final = 7
"""Whole days of which the busiest one says how many rows a day has."""
MOST_PER_HOUR: Final = 50_000
"""Maximum count of an hour: a chart needs no more, and counting must stay cheap."""
MOST_PER_DAY: Final = 50_000
"""Predictions of a day up to which they are counted when they are asked for; `count_days` counts larger days."""

_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_SETTLED_US = 600_000_000  # predictions this old are written to the log
_LATE_US = _HOUR_US  # and these also after an outage
_AT_ONCE_US = 300_000_000  # counted by one statement: a stop waits for it


class Traffic:
    """Counts predictions per hour and per day; what is over is counted once, a large day once for all services.

    Args:
        database: Open state.
        sample: Share of the predictions that the log has, in (0, 1].
    """

    def __init__(self, database: Database, sample: float = 1.0) -> None:
        self._database = database
        self._sample = sample
        self._over: dict[tuple[str, int], int] = {}
        self._days: dict[tuple[str, int], int] = {}
        self._counted: dict[str, int] = {}  # until when `count_days` has counted a model's days
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
            found = {
                hour: _count(connection, ids, hour * _HOUR_US, (hour + 1) * _HOUR_US, MOST_PER_HOUR)
                for hour in wanted
                if hour not in known
            }
        settled = {hour: count for hour, count in found.items() if (hour + 1) * _HOUR_US + _SETTLED_US <= now_us}
        with self._lock:
            self._over = {key: count for key, count in self._over.items() if key[1] >= wanted[0]}
            self._over |= {(model, hour): count for hour, count in settled.items()}
        return [(known | found)[hour] for hour in wanted]

    def rows_per_day(self, model: str, now_us: int) -> int | None:
        """Return the predictions of the busiest of the last `DAYS` whole days (UTC); None if that is not known.

        The day of the model's first prediction is not a whole one. Yesterday is left out until it is counted; None if
        an earlier day is not counted yet, or if no whole day has predictions. Reads at most `MOST_PER_DAY` of a day.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        present = now_us // _DAY_US
        wanted = range(present - DAYS, present)
        with self._lock:
            known = {day: count for day in wanted if (count := self._days.get((model, day))) is not None}
        with self._database.connect() as connection:
            ids = origins_of(connection, model)
            found = _per_day(connection, model, ids, [day for day in wanted if day not in known])
            counts = known | found
            busy = [day for day in wanted if counts[day] != 0]
            if busy and not _any_before(connection, ids, busy[0]):
                del busy[0]
        settled = {
            day: count
            for day, count in found.items()
            if count is not None and (day + 1) * _DAY_US + _SETTLED_US <= now_us
        }
        with self._lock:
            self._days = {key: count for key, count in self._days.items() if key[1] >= wanted[0]}
            self._days |= {(model, day): count for day, count in settled.items()}
        rows = [counts[day] for day in busy if counts[day] is not None or day < present - 1]
        whole = [count for count in rows if count is not None]
        return math.ceil(max(whole) / self._sample) if whole and len(whole) == len(rows) else None

    def count_days(self, model: str, now_us: int, stopped: Callable[[], bool]) -> bool:
        """Count the predictions of days with more than `MOST_PER_DAY` up to an hour ago, and store the counts.

        Args:
            model: The model, for which no one else counts now.
            now_us: The time.
            stopped: Returns whether to stop; called between statements.

        Returns:
            Whether it was stopped before the end.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        first, until = now_us // _DAY_US - DAYS, (now_us - _LATE_US) // _HOUR_US * _HOUR_US
        if self._counted.get(model) == until:
            return False
        for day in range(first, until // _DAY_US + 1):
            through, end = day * _DAY_US, min((day + 1) * _DAY_US, until)
            while through < end:
                if stopped():
                    return True
                began_s = time.monotonic()
                through = self._count_on(model, day, end)
                time.sleep(time.monotonic() - began_s)  # leaves half of the time to predictions
        self._counted[model] = until
        return False

    def _count_on(self, model: str, day: int, end: int) -> int:
        """Count a part of a day; return until when it is counted, which for a small day needs no storing."""
        with self._database.connect() as connection:
            ids = origins_of(connection, model)
            stored = connection.execute(
                select(daily_rows.c.rows, daily_rows.c.through).where(_is(model), daily_rows.c.day == day)
            ).first()
            if stored is None and _count(connection, ids, day * _DAY_US, end, MOST_PER_DAY) < MOST_PER_DAY:
                return end
            rows, since = stored or (0, day * _DAY_US)
            if since >= end:
                return int(since)
            through = min(since + _AT_ONCE_US, end)
            rows += _count(connection, ids, since, through)
        with self._database.begin() as connection:
            values = {"rows": rows, "through": through}
            upsert = insert_for(connection, daily_rows).values(model=model, day=day, **values)
            connection.execute(upsert.on_conflict_do_update(index_elements=["model", "day"], set_=values))
            connection.execute(delete(daily_rows).where(_is(model), daily_rows.c.day < day - DAYS))
        return int(through)


def _count(connection: Connection, ids: list[int], since: int, until: int, at_most: int | None = None) -> int:
    within = (predictions.c.created_at >= since, predictions.c.created_at < until)
    rows = select(literal(1)).where(predictions.c.origin.in_(ids), *within).limit(at_most).subquery()
    return int(connection.execute(select(func.count()).select_from(rows)).scalar_one())


def _per_day(connection: Connection, model: str, ids: list[int], days: Collection[int]) -> dict[int, int | None]:
    """Return the predictions of days; None for a large one that is not counted yet."""
    whole = daily_rows.c.through == (daily_rows.c.day + 1) * _DAY_US
    stored = select(daily_rows.c.day, daily_rows.c.rows).where(_is(model), daily_rows.c.day.in_(days), whole)
    counted: dict[int, int | None] = {row.day: row.rows for row in connection.execute(stored)}
    for day in days:
        if day not in counted:
            rows = _count(connection, ids, day * _DAY_US, (day + 1) * _DAY_US, MOST_PER_DAY)
            counted[day] = rows if rows < MOST_PER_DAY else None
    return counted


def _is(model: str) -> ColumnElement[bool]:
    return daily_rows.c.model == model


def _any_before(connection: Connection, ids: list[int], day: int) -> bool:
    earlier = (predictions.c.origin.in_(ids), predictions.c.created_at < day * _DAY_US)
    return connection.execute(select(literal(1)).where(*earlier).limit(1)).first() is not None
