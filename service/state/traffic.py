"""Count predictions per hour."""

from __future__ import annotations

import threading
from typing import Final

from sqlalchemy import Connection, func, literal, select

from service.state.database import Database
from service.state.tables import predictions
from service.state.window import origins_of

HOURS: Final = 24
MOST_PER_HOUR: Final = 50_000
"""Maximum count of an hour: a chart needs no more, and counting must stay cheap."""

_HOUR_US = 3_600_000_000
_SETTLED_US = 600_000_000  # predictions this old are written to the log


class Traffic:
    """Counts predictions per hour; past hours are counted once.

    Args:
        database: Open state.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._over: dict[tuple[str, int], int] = {}
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


def _count(connection: Connection, ids: list[int], hour: int) -> int:
    within = (predictions.c.created_at >= hour * _HOUR_US, predictions.c.created_at < (hour + 1) * _HOUR_US)
    rows = select(literal(1)).where(predictions.c.origin.in_(ids), *within).limit(MOST_PER_HOUR).subquery()
    return int(connection.execute(select(func.count()).select_from(rows)).scalar_one())
