"""The groups that looks have shown, and the reference rows that they read."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("exposures", sa.Column("groups", sa.LargeBinary))
    op.add_column("exposures", sa.Column("reference", sa.Text))
