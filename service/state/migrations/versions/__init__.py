"""One numbered file per schema change; never change the statements of a released file.

On PostgreSQL, an index is built while its table is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import op


def create_index(name: str, table: str, columns: list[str], *, after: str) -> None:
    """Create an index; on PostgreSQL, outside of this transaction, unless the transaction itself makes the table.

    Args:
        name: Name of the index.
        table: Its table.
        columns: Columns or expressions.
        after: Schema before the migration: if others see it, they see the table, too.
    """
    connection = op.get_bind()
    with free_connection(connection, after=after) as beside:
        if beside is not None:
            beside.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")  # of an interrupted migration
            beside.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {name} ON {table} ({', '.join(columns)})")
            return
    op.create_index(name, table, [sa.text(column) for column in columns])


@contextmanager
def free_connection(connection: sa.Connection, *, after: str) -> Iterator[sa.Connection | None]:
    """Yield a connection beside the migration's, whose statements are transactions of their own.

    Args:
        connection: That of the migration.
        after: Schema before the migration: if others see it, they see its tables, too. If not, None is yielded, and so
            it is on SQLite.
    """
    if connection.dialect.name != "postgresql":
        yield None
        return
    with connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as beside:
        schema = sa.text("SELECT version_num FROM alembic_version")
        if not sa.inspect(beside).has_table("alembic_version") or beside.execute(schema).scalar_one_or_none() != after:
            yield None
            return
        beside.detach()  # the time limit below is its own
        if not beside.info.get("pooled"):
            beside.exec_driver_sql("SET lock_timeout = 0")  # it waits for transactions that began before
        yield beside
