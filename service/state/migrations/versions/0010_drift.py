"""Tests of input drift."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "drift",
        sa.Column("model", KEY, primary_key=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.Column("level", sa.Double, nullable=False),
        sa.Column("revision", sa.Text, nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
    )
