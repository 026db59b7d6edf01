"""Keys that approved a bundle's proposal, where four eyes require two."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "approvals",
        sa.Column("model", KEY, primary_key=True),
        sa.Column("revision", KEY, primary_key=True),
        sa.Column("by", KEY, primary_key=True),
        sa.Column("by_key", sa.Text),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text),
    )
