"""The hash chain over the audit log. `migrating.upgrade` then links the entries so far."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit_links",
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("entry", sa.BigInteger, nullable=False),
        sa.Column("head", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("entry", name="audit_links_entry"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_links "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()"
        )
    else:
        for event in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_links_refuse_{event.lower()} BEFORE {event} ON audit_links "
                "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
            )
