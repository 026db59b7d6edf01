"""Rows of a group that are the history of its cases, and their index.

On PostgreSQL, the partitions get their index before, while they are written; that of the whole table is then made of
these, without a scan.
"""

import sqlalchemy as sa
from alembic import op

from service.state.migrations.versions import free_connection

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

INDEX = "predictions_by_group"
ROWS = "(cluster, id) WHERE in_history"
COLUMN = "ALTER TABLE predictions ADD COLUMN IF NOT EXISTS in_history BOOLEAN"
PARTS = "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = to_regclass('predictions')"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        op.add_column("predictions", sa.Column("in_history", sa.Boolean))
        op.create_index(INDEX, "predictions", ["cluster", "id"], sqlite_where=sa.text("in_history = 1"))
        return
    with free_connection(connection, after=down_revision) as beside:
        if beside is not None:
            beside.exec_driver_sql(COLUMN)
            for part in beside.exec_driver_sql(PARTS).scalars().all():
                beside.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {part}_by_group")  # of an interrupted one
                beside.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {part}_by_group ON {part} {ROWS}")
    op.execute(COLUMN)
    op.execute(f"CREATE INDEX {INDEX} ON predictions {ROWS}")
