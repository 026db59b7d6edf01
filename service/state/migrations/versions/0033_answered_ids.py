"""Ids of the predictions that each key was answered."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "answered_ids",
        sa.Column("entry", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("model", KEY, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("ids", sa.LargeBinary, nullable=False),
    )
    op.create_index("answered_ids_by_time", "answered_ids", ["at"])
