"""INSERT … ON CONFLICT, for which SQLAlchemy has different objects for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


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
    placeholder = "%s" if connection.dialect.name == "postgresql" else "?"
    sql = (
        f"INSERT INTO {table.name} ({', '.join(columns)}) "  # noqa: S608 — names from this package's tables only
        f"VALUES ({', '.join([placeholder] * len(columns))}) ON CONFLICT DO NOTHING"
    )
    connection.exec_driver_sql(sql, list(rows))
