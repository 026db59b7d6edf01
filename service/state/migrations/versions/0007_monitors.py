"""Monitors of certificates and of calibration, and estimates of the traffic."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
COUNTED = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "monitors",
        sa.Column("id", COUNTED, sa.Identity(), primary_key=True),
        sa.Column("model", KEY, nullable=False),
        sa.Column("kind", KEY, nullable=False),
        sa.Column("name", KEY, nullable=False),
        sa.Column("subject", KEY, nullable=False),
        sa.Column("certificate", KEY),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("through", sa.BigInteger, nullable=False),
        sa.Column("cohorts", sa.BigInteger, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("evidence", sa.Double, nullable=False),
        sa.Column("fired_at", sa.BigInteger),
        sa.Column("job", sa.Text),
        sa.Column("ended_at", sa.BigInteger),
    )
    for name, columns, where, unique in (
        ("monitors_running", ["model", "subject"], "ended_at IS NULL", True),
        ("monitors_fired", ["model", "certificate"], "fired_at IS NOT NULL", False),
    ):
        op.create_index(
            name, "monitors", columns, unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where)
        )
    op.create_table(
        "estimates",
        sa.Column("model", KEY, primary_key=True),
        sa.Column("revision", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
    )
