"""The issuer of a person's session, and the key that uploaded a labelled set."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("issuer", sa.Text))
    op.add_column("labelled_sets", sa.Column("by_key", sa.Text))
