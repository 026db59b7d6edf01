"""The key that sent labels, whose name may be used again, and an index of labels by their request."""

import sqlalchemy as sa
from alembic import op

from service.state.migrations.versions import create_index

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("feedback_by_batch", "feedback", ["model", "batch", "position"], after=down_revision)
    op.add_column("feedback_batches", sa.Column("by_key", sa.Text))  # last: its lock stops requests with labels
