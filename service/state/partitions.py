"""Partitions of PostgreSQL's largest tables: one for each day of prediction ids.

There is no DEFAULT partition: PostgreSQL would scan it under an exclusive lock for every new partition, and could not
detach one without stopping readers. A writer makes the partition of its ids if it is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import Connection, text

from service.state.tables import inputs, predictions
from service.times import DAY_US

PARTITIONED: Final = (inputs.name, predictions.name)
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
_DIGITS_OF_IDS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # as `service.ids` writes them
_BOUNDS: Final = re.compile(r"(?:MINVALUE|'(\w*)')")


class Part(NamedTuple):
    """A partition with the ids in [since, until)."""

    name: str
    since: str  # "" for no start
    until: str


def first_id(at_us: int) -> str:
    """Return the start of the ids from a time on.

    >>> first_id(1_700_000_000_000_000)
    '01HF7YAT00'
    """
    return "".join(_DIGITS_OF_IDS[at_us // 1000 >> shift & 31] for shift in range(45, -1, -5))


def time_of_id(id_: str) -> int:
    """Return the time of an id in microseconds since the epoch; its first 10 characters suffice.

    >>> time_of_id("01HF7YAT00")
    1700000000000000
    """
    return int(id_[:10].translate(str.maketrans(_DIGITS_OF_IDS, _DIGITS)), 32) * 1000


def day_of(id_: str) -> int:
    """Return the day of an id, counted from the epoch.

    >>> day_of("01HF7YAT00")
    19675
    """
    return time_of_id(id_) // DAY_US


def cover(connection: Connection, days: Iterable[int]) -> list[str]:
    """Make the missing partitions of some days; return their names.

    Nobody waits for that, except for others who make or drop partitions.

    Args:
        connection: Inside a write transaction, which holds a lock against them until its end.
        days: Days since the epoch.
    """
    days = sorted(days)
    made = []
    for table in PARTITIONED:
        connection.exec_driver_sql(f"LOCK TABLE ONLY {table} IN SHARE UPDATE EXCLUSIVE MODE")
        there = parts_of(connection, table)
        for day in days:
            name = f"{table}_{np.datetime64(day, 'D')}".replace("-", "")
            part = Part(name, first_id(day * DAY_US), first_id((day + 1) * DAY_US))
            if any(other.since < part.until and part.since < other.until for other in there):
                continue
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {part.name}")  # detached, but not dropped
            connection.exec_driver_sql(f"CREATE TABLE {part.name} (LIKE {table})")
            connection.exec_driver_sql(
                f"ALTER TABLE {table} ATTACH PARTITION {part.name} FOR VALUES FROM ('{part.since}') TO ('{part.until}')"
            )
            made.append(part.name)
    return made


def parts_of(connection: Connection, table: str) -> list[Part]:
    """Return a table's partitions, oldest first."""
    found = connection.execute(
        text(
            "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i "
            "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(:table)"
        ),
        {"table": table},
    )
    parts = [Part(name, *_BOUNDS.findall(bounds)) for name, bounds in found]
    return sorted(parts, key=lambda part: part.until)
