"""What a webhook was told of each case."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cases", sa.Column("told", sa.BigInteger))
    op.execute("CREATE INDEX cases_untold ON cases (id) WHERE coalesce(told, -1) <> coalesce(done_at, 0)")
