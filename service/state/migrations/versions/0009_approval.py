"""Cancellable jobs with progress; the proposer of a revision; rejected proposals."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("by_key", sa.Text))
    op.add_column("jobs", sa.Column("step", sa.Integer, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("looks", sa.JSON(none_as_null=True)))
    op.add_column("jobs", sa.Column("outcome", sa.JSON(none_as_null=True)))
    op.add_column("jobs", sa.Column("ending", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("revisions", sa.Column("by_key", sa.Text))
    op.create_table(
        "rejections",
        sa.Column("model", KEY, primary_key=True),
        sa.Column("revision", KEY, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
