"""Uploaded labelled sets, and their rows in chunks."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "labelled_sets",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("model", KEY, nullable=False),
        sa.Column("model_digest", KEY, nullable=False),
        sa.Column("sha256", KEY, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("represents", sa.Text),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("segments", sa.JSON, nullable=False),
        sa.Column("dtype", sa.Text, nullable=False),
        sa.Column("shape", sa.JSON, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("whole", sa.Boolean, nullable=False),
        sa.UniqueConstraint("model", "model_digest", "sha256", name="labelled_sets_content"),
    )
    op.create_table(
        "labelled_rows",
        sa.Column("set", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("rows", sa.Integer, nullable=False),
        *(sa.Column(name, sa.LargeBinary, nullable=False) for name in ("values", "label", "cluster")),
        *(sa.Column(name, sa.LargeBinary) for name in ("propensity", "predicted_at", "labelled_at", "segment")),
    )
