"""Looks at prediction sets, counted over all positive classes."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

REVISIONS = sa.table("revisions", sa.column("model", sa.Text), sa.column("policies", sa.JSON))
EXPOSURES = sa.table(
    "exposures",
    *(sa.column(name, sa.Text) for name in ("model", "model_digest", "rows", "basis", "scope", "reference")),
    *(sa.column(name, sa.BigInteger) for name in ("id", "look", "earliest_row", "at")),
    sa.column("groups", sa.LargeBinary),
)


def upgrade() -> None:
    """Copy the looks at certify rows of each class for which a policy has had a set; some of them had none."""
    connection = op.get_bind()
    solved = connection.execute(sa.select(REVISIONS.c.model, REVISIONS.c.policies))
    wanted = {
        (model, document["policy"]["positive"])
        for model, policies in solved
        for document in policies.values()
        if document["policy"].get("set") is not None
    }
    certify = sa.select(EXPOSURES).where(EXPOSURES.c.rows == "certify").order_by(EXPOSURES.c.id)
    copies: list[dict[str, Any]] = [
        {**{name: value for name, value in look.items() if name != "id"}, "scope": "*set"}
        for look in connection.execute(certify).mappings()
        if (look["model"], look["scope"]) in wanted
    ]
    if copies:
        op.bulk_insert(EXPOSURES, copies)
