"""Indexes of the waiting cases: those of a policy, and those that are claimed."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

INDEXES = {
    "by_policy": (["model", "policy", "place", "id"], "done_at IS NULL"),
    "claimed": (["model", "lease_until"], "done_at IS NULL AND lease_until IS NOT NULL"),
}


def upgrade() -> None:
    for name, (columns, where) in INDEXES.items():
        part = sa.text(where)
        op.create_index(f"cases_{name}", "cases", columns, sqlite_where=part, postgresql_where=part)
