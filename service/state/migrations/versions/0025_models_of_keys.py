"""Models that a key is limited to, and the source of its labels."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("models", sa.JSON))
    op.add_column("api_keys", sa.Column("source", sa.Text))
