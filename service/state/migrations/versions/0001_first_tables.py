"""First tables."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
COUNTED = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("name", KEY, primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "numbers",
        sa.Column("series", KEY, primary_key=True),
        sa.Column("last", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "origins",
        sa.Column("id", COUNTED, sa.Identity(), primary_key=True),
        sa.Column("model", KEY, nullable=False),
        sa.Column("model_digest", KEY, nullable=False),
        sa.Column("revision", KEY, nullable=False),
        sa.Column("policy", KEY, nullable=False),
        sa.UniqueConstraint("model", "model_digest", "revision", "policy", name="origins_unique"),
    )
    op.create_table(
        "predictions",
        sa.Column("id", KEY, primary_key=True),
        sa.Column("origin", sa.BigInteger, sa.ForeignKey("origins.id", name="predictions_origin"), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("reference", KEY),
        sa.Column("cluster", sa.BigInteger, nullable=False),
        sa.Column("logits", sa.LargeBinary, nullable=False),
        sa.Column("label", sa.Integer, nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("action", sa.Text),
        sa.Column("propensity", sa.Double),
        sa.Column("sought", sa.Boolean, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("predictions_by_time", "predictions", ["origin", "created_at"])
    op.create_index(
        "predictions_by_reference",
        "predictions",
        ["reference"],
        sqlite_where=sa.text("reference IS NOT NULL"),
        postgresql_where=sa.text("reference IS NOT NULL"),
    )
    op.create_index(
        "predictions_sought",
        "predictions",
        ["origin", "created_at"],
        sqlite_where=sa.text("sought = 1"),
        postgresql_where=sa.text("sought"),
    )
    op.create_table(
        "feedback",
        sa.Column("target", KEY, primary_key=True),
        sa.Column("by_reference", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("model", KEY, primary_key=True),
        sa.Column("batch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("labelled_at", sa.BigInteger),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "feedback_batches",
        sa.Column("model", KEY, primary_key=True),
        sa.Column("batch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("by", KEY, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("idempotency_key", KEY),
        sa.Column("body_digest", sa.LargeBinary),
        sa.Column("receipt", sa.JSON, nullable=False),
        sa.UniqueConstraint("model", "by", "idempotency_key", name="feedback_batches_key"),
    )
    op.create_table(
        "revisions",
        sa.Column("model", KEY, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("bundle_id", sa.Text, nullable=False),
        sa.Column("bundle_version", sa.BigInteger, nullable=False),
        sa.Column("model_digest", sa.Text, nullable=False),
        sa.Column("calibrator", sa.JSON, nullable=False),
        sa.Column("policies", sa.JSON, nullable=False),
        sa.Column("parent", sa.Text),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("gate", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("report", sa.JSON, nullable=False),
    )
    op.create_table(
        "activations",
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("model", KEY, nullable=False),
        sa.Column("active", sa.Text, nullable=False),
        sa.Column("previous", sa.Text),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
    )
    op.create_index("activations_by_model", "activations", ["model", "epoch"])
    op.create_table(
        "exposures",
        sa.Column("id", COUNTED, sa.Identity(), primary_key=True),
        sa.Column("model", KEY, nullable=False),
        sa.Column("model_digest", KEY, nullable=False),
        sa.Column("rows", KEY, nullable=False),
        sa.Column("basis", KEY, nullable=False),
        sa.Column("scope", KEY, nullable=False),
        sa.Column("look", sa.BigInteger, nullable=False),
        sa.Column("earliest_row", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_index("exposures_by_rows", "exposures", ["model", "model_digest", "rows", "basis", "scope"])
    op.create_table(
        "jobs",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("model", KEY, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("progress", sa.Text, nullable=False),
        sa.Column("result", sa.JSON),
        sa.Column("error", sa.JSON),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("finished_at", sa.BigInteger),
    )
    op.create_index("jobs_unfinished", "jobs", ["state"])
    op.create_table(
        "audit",
        sa.Column("id", COUNTED, sa.Identity(), primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("model", KEY),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    op.create_index("audit_by_model", "audit", ["model", "id"])
    op.create_table(
        "api_keys",
        sa.Column("prefix", KEY, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()"
        )
    else:
        for event in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_refuses_{event.lower()} BEFORE {event} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
            )
