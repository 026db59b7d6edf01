"""INSERT … ON CONFLICT on SQLite and PostgreSQL, and COPY."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Table
from sqlalchemy.dialects import postgresql, sqlite

_COPIED: Final = 128  # rows from which COPY costs less than INSERT
# Most rows of a statement on SQLite. Its driver releases Python's lock once for each statement, in `executemany` once
# for each row, and may wait to get it back. Powers of two, so that few statements are compiled. SQLite takes 32,766
# values: up to 127 columns.
_TOGETHER: Final = 256


def insert_for(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT with ON CONFLICT in the connection's dialect."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def insert_new(
    connection: Connection,
    table: Table,
    columns: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    *,
    skip: bool = True,
) -> None:
    """Insert many rows.

    Args:
        connection: Inside a write transaction.
        table: The table; a partitioned one has a partition for each row.
        columns: Names of the columns.
        rows: A value for each column, of the driver's own types, JSON as text. They go to the driver directly, because
            SQLAlchemy's processing would cost as much as the insertion.
        skip: Whether to skip rows whose key exists; else they are an error.
    """
    existing = "ON CONFLICT DO NOTHING" if skip else ""  # S608 below: names of our own tables and columns alone
    if connection.dialect.name != "postgresql":
        marks, start = f"({', '.join('?' for _ in columns)})", 0
        while start < len(rows):
            count = min(_TOGETHER, 1 << ((len(rows) - start).bit_length() - 1))
            values = ", ".join([marks] * count)
            sql = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES {values} {existing}"  # noqa: S608
            connection.exec_driver_sql(sql, tuple(chain.from_iterable(rows[start : start + count])))
            start += count
        return
    types = _types(connection.dialect, table, tuple(columns))
    if len(rows) >= _COPIED and _copied(connection, table, columns, types, rows):
        return
    lists = ", ".join(f"%s::{type_}[]" for type_ in types)  # the same statement, whatever the number of rows
    sql = f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT * FROM unnest({lists}) {existing}"  # noqa: S608
    for start in range(0, len(rows), _COPIED):
        part = rows[start : start + _COPIED]
        connection.exec_driver_sql(sql, tuple(map(list, zip(*part, strict=True))))


def _copied(
    connection: Connection,
    table: Table,
    columns: Sequence[str],
    types: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
) -> bool:
    """COPY rows; return False if the key of one exists, and insert none."""
    from psycopg import errors  # an optional dependency

    driver: Any = connection.connection.driver_connection
    sql = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    try:
        with connection.begin_nested(), driver.cursor() as cursor, cursor.copy(sql) as copy:
            copy.set_types(["text" if type_ == "json" else type_ for type_ in types])  # the same bytes
            for row in rows:
                copy.write_row(row)
    except errors.UniqueViolation:
        return False
    return True


@lru_cache(maxsize=64)
def _types(dialect: Dialect, table: Table, columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(table.c[name].type.compile(dialect).lower().partition(" collate")[0] for name in columns)
