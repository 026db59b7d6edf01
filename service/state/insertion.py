"""INSERT … ON CONFLICT, for which SQLAlchemy has different objects for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

_COPIED: Final = 1_000  # rows from which COPY is worth its temporary table


def insert_for(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT with ON CONFLICT in the connection's dialect."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def insert_new(connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert many rows; skip rows whose key exists.

    Args:
        connection: Inside a write transaction.
        table: The table.
        columns: Names of the columns.
        rows: A value for each column, of the driver's own types (no JSON). They go to the driver directly, because
            SQLAlchemy's processing would cost as much as the insertion.
    """
    names = ", ".join(columns)
    postgresql_here = connection.dialect.name == "postgresql"
    if postgresql_here and len(rows) >= _COPIED:
        _copy_new(connection, table.name, names, rows)
        return
    placeholder = "%s" if postgresql_here else "?"
    sql = (
        f"INSERT INTO {table.name} ({names}) "  # noqa: S608 — names from this package's tables only
        f"VALUES ({', '.join([placeholder] * len(columns))}) ON CONFLICT DO NOTHING"
    )
    connection.exec_driver_sql(sql, list(rows))


def _copy_new(connection: Connection, table: str, names: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """COPY into a table of this transaction, then insert from there: COPY itself stops at a key that exists."""
    new = f"new_{table}"
    connection.exec_driver_sql(
        f"CREATE TEMPORARY TABLE {new} ON COMMIT DROP AS SELECT {names} FROM {table} WITH NO DATA"  # noqa: S608
    )
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY {new} ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    connection.exec_driver_sql(
        f"INSERT INTO {table} ({names}) SELECT {names} FROM {new} ON CONFLICT DO NOTHING"  # noqa: S608
    )
    connection.exec_driver_sql(f"DROP TABLE {new}")  # before the next batch of the same transaction
