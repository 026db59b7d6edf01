"""Starts of jobs; receipts only of requests with a key; numbers of policy versions."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NUMBERS = sa.table("numbers", sa.column("series", sa.Text), sa.column("last", sa.BigInteger))
REVISIONS = sa.table("revisions", sa.column("model", sa.Text), sa.column("policies", sa.JSON))
EXPOSURES = sa.table(
    "exposures",
    *(sa.column(name, sa.Text) for name in ("model", "model_digest", "rows", "basis", "scope")),
    *(sa.column(name, sa.BigInteger) for name in ("look", "earliest_row", "at")),
)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("starts", sa.Integer, nullable=False, server_default="0"))
    with op.batch_alter_table("feedback_batches") as batch:
        batch.alter_column("receipt", existing_type=sa.JSON, nullable=True)
    policies = [
        (model, policy, solved)
        for model, documents in op.get_bind().execute(sa.select(REVISIONS.c.model, REVISIONS.c.policies))
        for policy, solved in documents.items()
    ]
    _number_policies(policies)
    _scope_by_positive(policies)


def _number_policies(policies: list[tuple[str, str, dict[str, Any]]]) -> None:
    """Start the numbering of policy versions after the existing ones."""
    last: dict[str, int] = {}
    for model, policy, solved in policies:
        series = f"policy/{model}/{policy}"
        last[series] = max(last.get(series, 0), solved["version"])
    if last:
        op.bulk_insert(NUMBERS, [{"series": series, "last": version} for series, version in last.items()])


def _scope_by_positive(policies: list[tuple[str, str, dict[str, Any]]]) -> None:
    """Copy looks at certify rows from policies to the positive class of every version of the policy."""
    positives = {(model, policy, solved["policy"]["positive"]) for model, policy, solved in policies}
    certify = op.get_bind().execute(sa.select(EXPOSURES).where(EXPOSURES.c.rows == "certify")).mappings().all()
    copies = [
        {**look, "scope": positive}
        for look in certify
        for model, policy, positive in positives
        if (model, policy) == (look["model"], look["scope"]) and positive != policy
    ]
    if copies:
        op.bulk_insert(EXPOSURES, copies)
