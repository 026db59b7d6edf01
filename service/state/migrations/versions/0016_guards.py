"""Guards of activations."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "guards",
        sa.Column("model", KEY, primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.Text, nullable=False),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("max_change", sa.Double, nullable=False),
        sa.Column("claims", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("looks", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
    )
