"""The index by which a recalibration reads a sample of the groups."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    drawn = sa.text("(cluster & 15) = 0")
    columns = ["origin", "created_at", "cluster", "id"]
    op.create_index("predictions_drawn", "predictions", columns, sqlite_where=drawn, postgresql_where=drawn)
