"""Challengers, what they make of predictions, and the groups that their comparisons have counted."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "challengers",
        sa.Column("model", KEY, primary_key=True),
        sa.Column("name", KEY, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.Text, nullable=False),
        sa.Column("share", sa.Double, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
    )
    op.create_table(
        "challenger_scores",
        sa.Column("id", KEY, primary_key=True),
        sa.Column("challenger", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("logits", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("challenger_scores_by_time", "challenger_scores", ["challenger", "created_at"])
    op.create_table(
        "compared_groups",
        sa.Column("monitor", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.BigInteger, primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
