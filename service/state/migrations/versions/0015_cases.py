"""The review queue: cases, and the hours in which a daily capacity is used."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
INDEXES = {
    "by_place": (["model", "place", "id"], "done_at IS NULL"),
    "by_due": (["model", "due_at", "id"], "done_at IS NULL"),
    "assigned": (["model", "assignee", "place", "id"], "done_at IS NULL AND assignee IS NOT NULL"),
    "done": (["model", "done_at", "id"], "done_at IS NOT NULL"),
}


def upgrade() -> None:
    op.create_table(
        "cases",
        sa.Column("id", KEY, primary_key=True),
        sa.Column("model", KEY, nullable=False),
        sa.Column("policy", KEY, nullable=False),
        sa.Column("selected", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("cluster", sa.BigInteger, nullable=False),
        sa.Column("place", sa.Double, nullable=False),
        sa.Column("probability", sa.Double, nullable=False),
        sa.Column("amount", sa.Double),
        sa.Column("assignee", KEY),
        sa.Column("claimed_by", sa.Text),
        sa.Column("lease_until", sa.BigInteger),
        sa.Column("lease", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("outcome", sa.Text),
        sa.Column("label", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("done_by", sa.Text),
        sa.Column("done_at", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    for name, (columns, where) in INDEXES.items():
        part = sa.text(where)
        op.create_index(f"cases_{name}", "cases", columns, sqlite_where=part, postgresql_where=part)
    op.create_index("cases_by_group", "cases", ["cluster", "id"])
    op.create_table(
        "review_hours",
        *(sa.Column(name, KEY, primary_key=True) for name in ("model", "policy", "priority")),
        sa.Column("hour", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("slots", sa.BigInteger, nullable=False),
        sa.Column("cut", sa.Integer, nullable=False),
        sa.Column("tie", sa.Double, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("usual", "before", "rows", "ranked")),
        sa.Column("counts", sa.JSON, nullable=False),
    )
