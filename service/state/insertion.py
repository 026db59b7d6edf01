"""INSERT … ON CONFLICT on SQLite and PostgreSQL, and COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

_COPIED: Final = 32  # rows from which COPY costs less than INSERT


def insert_for(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT with ON CONFLICT in the connection's dialect."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def insert_new(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert many rows; skip rows whose key exists.

    Args:
        connection: Inside a write transaction.
        table: The table; a partitioned one has a partition for each row.
        columns: Names of the columns.
        rows: A value for each column, of the driver's own types (no JSON). They go to the driver directly, because
            SQLAlchemy's processing would cost as much as the insertion.
    """
    postgresql_here = connection.dialect.name == "postgresql"
    if postgresql_here and len(rows) >= _COPIED:
        _copy_new(connection, table, columns, rows)
        return
    placeholder = "%s" if postgresql_here else "?"
    sql = (
        f"INSERT INTO {table.name} ({', '.join(columns)}) "  # noqa: S608 — names from this package's tables only
        f"VALUES ({', '.join([placeholder] * len(columns))}) ON CONFLICT DO NOTHING"
    )
    connection.exec_driver_sql(sql, list(rows))


def _copy_new(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """COPY rows; if that stops at a key that exists, COPY beside the table and insert from there."""
    from psycopg import errors  # an optional dependency

    try:
        with connection.begin_nested():
            _copy(connection, table, table.name, columns, rows)
    except errors.UniqueViolation:
        new, names = f"new_{table.name}", ", ".join(columns)
        connection.exec_driver_sql(
            f"CREATE TEMPORARY TABLE {new} ON COMMIT DROP AS SELECT {names} FROM {table.name} WITH NO DATA"  # noqa: S608
        )
        _copy(connection, table, new, columns, rows)
        connection.exec_driver_sql(
            f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {new} ON CONFLICT DO NOTHING"  # noqa: S608
        )
        connection.exec_driver_sql(f"DROP TABLE {new}")  # before the next rows of the same transaction


def _copy(
    connection: Connection, table: Table, into: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    types = [table.c[name].type.compile(connection.dialect).lower().partition(" collate")[0] for name in columns]
    driver: Any = connection.connection.driver_connection
    sql = f"COPY {into} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    with driver.cursor() as cursor, cursor.copy(sql) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)
