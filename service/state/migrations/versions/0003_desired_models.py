"""Desired state of models."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "desired",
        sa.Column("model", KEY, primary_key=True),
        sa.Column("loaded", sa.Boolean, nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
    )
