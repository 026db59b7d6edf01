"""INSERT … ON CONFLICT, the one statement for which SQLite and PostgreSQL need different objects."""

from __future__ import annotations

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_for(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT that knows ON CONFLICT, in the connection's dialect."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
