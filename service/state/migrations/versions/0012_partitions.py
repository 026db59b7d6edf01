"""Partitions of predictions and inputs by id on PostgreSQL; no foreign key of predictions there.

The table so far becomes the partition of all ids before a day. That it has no others must be proved by a scan, which
another connection does while the service before this one reads and writes.
"""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

DAY_MS = 86_400_000
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
NAMES = {
    "predictions": ("pkey", "by_time", "by_reference", "sought", "drawn"),
    "inputs": ("pkey", "by_time"),
}


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    bound = _bound(connection)
    op.execute("ALTER TABLE predictions DROP CONSTRAINT predictions_origin")
    for table, names in NAMES.items():
        op.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
        for name in names:
            op.execute(f"ALTER INDEX {table}_{name} RENAME TO {table}_before_{name}")
        op.execute(f"CREATE TABLE {table} (LIKE {table}_before) PARTITION BY RANGE (id)")
        op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {table}_pkey PRIMARY KEY (id)")
    op.execute("CREATE INDEX predictions_by_time ON predictions (origin, created_at)")
    op.execute("CREATE INDEX predictions_by_reference ON predictions (reference) WHERE reference IS NOT NULL")
    op.execute("CREATE INDEX predictions_sought ON predictions (origin, created_at) WHERE sought")
    op.execute(
        "CREATE INDEX predictions_drawn ON predictions (origin, created_at, cluster, id) WHERE (cluster & 15) = 0"
    )
    op.execute("CREATE INDEX inputs_by_time ON inputs (created_at)")
    for table in NAMES:
        op.execute(f"ALTER TABLE {table} ATTACH PARTITION {table}_before FOR VALUES FROM (MINVALUE) TO ('{bound}')")
        op.execute(f"ALTER TABLE {table}_before DROP CONSTRAINT IF EXISTS {table}_before_ids")


def _bound(connection: sa.Connection) -> str:
    """Return the first id that no row has yet, proved if there are rows and this transaction has not changed them."""
    today = time.time_ns() // 1_000_000 // DAY_MS
    with connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as beside:
        schema = sa.text("SELECT version_num FROM alembic_version")
        beside_is_free = (
            sa.inspect(beside).has_table("alembic_version")
            and beside.execute(schema).scalar_one_or_none() == down_revision
        )
        rows = sa.text("SELECT EXISTS (SELECT FROM predictions)")
        filled = (beside if beside_is_free else connection).execute(rows).scalar_one()
        # A service of the version before goes on to write rows until it is replaced, maybe for days.
        until_ms = (today + 8 if filled else today + 1) * DAY_MS
        bound = "".join(DIGITS[until_ms >> shift & 31] for shift in range(45, -1, -5))
        if filled and beside_is_free:
            _prove(beside, bound)
    return bound


def _prove(beside: sa.Connection, bound: str) -> None:
    try:
        for table in NAMES:
            named = f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_before_ids"
            beside.execute(sa.text(f"{named}, ADD CONSTRAINT {table}_before_ids CHECK (id < '{bound}') NOT VALID"))
            beside.execute(sa.text(f"ALTER TABLE {table} VALIDATE CONSTRAINT {table}_before_ids"))
    except BaseException:
        for table in NAMES:
            beside.execute(sa.text(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_before_ids"))
        raise
