"""Sessions of people whom an identity provider knows, and their logins that were used."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("name", sa.Text))
    op.add_column("sessions", sa.Column("groups", sa.JSON))
    op.create_table(
        "used_logins",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
