"""Stored inputs, and indexes to find old rows."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("origins", sa.Column("input_spec", sa.Text))
    op.create_table(
        "inputs",
        sa.Column("id", KEY, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("inputs_by_time", "inputs", ["created_at"])
    op.create_index("feedback_by_time", "feedback", ["received_at"])
    op.create_index("feedback_batches_by_time", "feedback_batches", ["received_at"])
