"""Reasons of reviewed cases."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cases", sa.Column("reasons", sa.JSON))
