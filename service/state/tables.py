"""Tables of the state database, as SQLAlchemy Core objects.

The migrations create the tables; these objects describe them to queries, and a test compares both. Times are int64
microseconds since the epoch, UTC. Keys use PostgreSQL's "C" collation: bytewise, like SQLite's.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.dialects import postgresql

KEY = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
COUNTED = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in an INTEGER PRIMARY KEY

metadata = MetaData()

# Random values made once per database.
secrets = Table(
    "secrets",
    metadata,
    Column("name", KEY, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

# Last number taken in each series.
numbers = Table(
    "numbers",
    metadata,
    Column("series", KEY, primary_key=True),
    Column("last", BigInteger, nullable=False),
)

# Origins of predictions; policy is id@version, or empty; input_spec describes the inputs.
origins = Table(
    "origins",
    metadata,
    Column("id", COUNTED, Identity(), primary_key=True),
    Column("model", KEY, nullable=False),
    Column("model_digest", KEY, nullable=False),
    Column("revision", KEY, nullable=False),
    Column("policy", KEY, nullable=False),
    Column("input_spec", Text),
    UniqueConstraint("model", "model_digest", "revision", "policy", name="origins_unique"),
)

# Logits as little-endian float32; cluster is the keyed hash of the group, else of the input's digest; segment is the
# request's name for a part of the traffic; amount is what is at stake in the row; in_history marks rows of the client's
# groups that a policy with a review queue decided. On PostgreSQL, predictions and inputs have partitions.
predictions = Table(
    "predictions",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("origin", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("reference", KEY),
    Column("cluster", BigInteger, nullable=False),
    Column("logits", LargeBinary, nullable=False),
    Column("label", Integer, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("action", Text),
    Column("propensity", Double),
    Column("sought", Boolean, nullable=False),
    Column("segment", Text),
    Column("amount", Double),
    Column("in_history", Boolean),
    # On PostgreSQL, its check would cost as much as the rest of the insertion; no origin is ever deleted.
    ForeignKeyConstraint(["origin"], ["origins.id"], name="predictions_origin").ddl_if(dialect="sqlite"),
    Index("predictions_by_time", "origin", "created_at"),
    Index(
        "predictions_by_reference",
        "reference",
        sqlite_where=text("reference IS NOT NULL"),
        postgresql_where=text("reference IS NOT NULL"),
    ),
    Index(
        "predictions_sought", "origin", "created_at", sqlite_where=text("sought = 1"), postgresql_where=text("sought")
    ),
    Index(  # a sixteenth of the groups, see `thinning`
        "predictions_drawn",
        "origin",
        "created_at",
        "cluster",
        "id",
        sqlite_where=text("(cluster & 15) = 0"),
        postgresql_where=text("(cluster & 15) = 0"),
    ),
    Index(
        "predictions_by_group",
        "cluster",
        "id",
        sqlite_where=text("in_history = 1"),
        postgresql_where=text("in_history"),
    ),
    sqlite_with_rowid=False,
    postgresql_partition_by="RANGE (id)",
)

# Stored inputs: little-endian values as a zlib stream. Row ids are those of the predictions.
inputs = Table(
    "inputs",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Index("inputs_by_time", "created_at"),
    sqlite_with_rowid=False,
    postgresql_partition_by="RANGE (id)",
)

UNTOLD = "coalesce(told, -1) <> coalesce(done_at, 0)"  # cases whose state a webhook has not been told

# Rows whose label people are to find; id is that of the prediction. place sorts them, smallest first. A case is done
# from done_at on; before, it is claimed until lease_until. lease counts its claims.
# told is the done_at that a webhook was told, 0 for none yet.
# reasons say why the row got its probability; a person who ends the case has seen them.
cases = Table(
    "cases",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("model", KEY, nullable=False),
    Column("policy", KEY, nullable=False),
    Column("selected", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("cluster", BigInteger, nullable=False),
    Column("place", Double, nullable=False),
    Column("probability", Double, nullable=False),
    Column("amount", Double),
    Column("assignee", KEY),
    Column("claimed_by", Text),
    Column("lease_until", BigInteger),
    Column("lease", BigInteger, nullable=False, server_default="0"),
    Column("outcome", Text),
    Column("label", Text),
    Column("reason", Text),
    Column("done_by", Text),
    Column("done_at", BigInteger),
    Column("told", BigInteger),
    Column("reasons", JSON(none_as_null=True)),
    *(
        Index(name, "model", *columns, sqlite_where=text(where), postgresql_where=text(where))
        for name, columns, where in (
            ("cases_by_place", ("place", "id"), "done_at IS NULL"),
            ("cases_by_policy", ("policy", "place", "id"), "done_at IS NULL"),
            ("cases_by_due", ("due_at", "id"), "done_at IS NULL"),
            ("cases_assigned", ("assignee", "place", "id"), "done_at IS NULL AND assignee IS NOT NULL"),
            ("cases_claimed", ("lease_until",), "done_at IS NULL AND lease_until IS NOT NULL"),
            ("cases_done", ("done_at", "id"), "done_at IS NOT NULL"),
        )
    ),
    Index("cases_by_group", "cluster", "id"),
    Index("cases_untold", "id", sqlite_where=text(UNTOLD), postgresql_where=text(UNTOLD)),
    sqlite_with_rowid=False,
)

# Rows of an hour among which a policy with a daily capacity selects, see `service.decisions.capacity`.
review_hours = Table(
    "review_hours",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("policy", KEY, primary_key=True),
    Column("priority", KEY, primary_key=True),
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("slots", BigInteger, nullable=False),
    Column("cut", Integer, nullable=False),
    Column("tie", Double, nullable=False),
    Column("usual", BigInteger, nullable=False),
    Column("before", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("ranked", BigInteger, nullable=False),
    Column("counts", JSON, nullable=False),
)

# One row per label; target is a prediction id (by_reference 0) or a client's reference (1). It comes first in the key:
# after the model, PostgreSQL without fresh statistics would read all labels of the model to find a few targets. So the
# index by model is that of an expression, which only queries for many labels have, see `window.labels_of`.
feedback = Table(
    "feedback",
    metadata,
    Column("target", KEY, primary_key=True),
    Column("by_reference", SmallInteger, primary_key=True, autoincrement=False),
    Column("model", KEY, primary_key=True),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("label", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("labelled_at", BigInteger),
    Column("received_at", BigInteger, nullable=False),
    Index("feedback_by_time", "received_at"),
    Index("feedback_by_batch", "model", "batch", "position"),
    Index("feedback_of_model", text("(model || '')"), "by_reference", "received_at"),
    sqlite_with_rowid=False,
)

# One row per feedback request; requests with an idempotency key keep their answer.
feedback_batches = Table(
    "feedback_batches",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("by", KEY, nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Column("idempotency_key", KEY),
    Column("body_digest", LargeBinary),
    Column("receipt", JSON(none_as_null=True)),
    Column("by_key", Text),
    UniqueConstraint("model", "by", "idempotency_key", name="feedback_batches_key"),
    Index("feedback_batches_by_time", "received_at"),
)

revisions = Table(
    "revisions",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("bundle_id", Text, nullable=False),
    Column("bundle_version", BigInteger, nullable=False),
    Column("model_digest", Text, nullable=False),
    Column("calibrator", JSON, nullable=False),
    Column("policies", JSON, nullable=False),
    Column("parent", Text),
    Column("cause", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("gate", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("report", JSON, nullable=False),
    Column("by_key", Text),
)

# Rejected proposals.
rejections = Table(
    "rejections",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("revision", KEY, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("reason", Text, nullable=False),
)

# Keys that approved a bundle's proposal, where four eyes require two.
approvals = Table(
    "approvals",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("revision", KEY, primary_key=True),
    Column("by", KEY, primary_key=True),
    Column("by_key", Text),
    Column("at", BigInteger, nullable=False),
    Column("reason", Text),
)

# The pointer's history; a model's row with the largest epoch is its pointer.
activations = Table(
    "activations",
    metadata,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("model", KEY, nullable=False),
    Column("active", Text, nullable=False),
    Column("previous", Text),
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("reason", Text),
    Index("activations_by_model", "model", "epoch"),
)

# Whether replicas should serve a model; one without a row should be served. Later changes have larger numbers.
desired = Table(
    "desired",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("loaded", Boolean, nullable=False),
    Column("change", BigInteger, nullable=False),
)

# Looks of a gate or a certification; scope is the policy's positive class, or empty. groups are those that no earlier
# look showed (int64), reference the fingerprint of reference rows.
exposures = Table(
    "exposures",
    metadata,
    Column("id", COUNTED, Identity(), primary_key=True),
    Column("model", KEY, nullable=False),
    Column("model_digest", KEY, nullable=False),
    Column("rows", KEY, nullable=False),
    Column("basis", KEY, nullable=False),
    Column("scope", KEY, nullable=False),
    Column("look", BigInteger, nullable=False),
    Column("earliest_row", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("groups", LargeBinary),
    Column("reference", Text),
    Index("exposures_by_rows", "model", "model_digest", "rows", "basis", "scope"),
)

# One row per monitor, which stays when the monitor ends. subject identifies its statement: the monitor continues if an
# activation does not change it. certificate identifies the certificate across revisions. document is the monitor; all
# rows before through are counted in it.
monitors = Table(
    "monitors",
    metadata,
    Column("id", COUNTED, Identity(), primary_key=True),
    Column("model", KEY, nullable=False),
    Column("kind", KEY, nullable=False),
    Column("name", KEY, nullable=False),
    Column("subject", KEY, nullable=False),
    Column("certificate", KEY),
    Column("place", BigInteger, nullable=False),
    Column("revision", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("through", BigInteger, nullable=False),
    Column("cohorts", BigInteger, nullable=False),
    Column("document", JSON, nullable=False),
    Column("evidence", Double, nullable=False),
    Column("fired_at", BigInteger),
    Column("job", Text),
    Column("ended_at", BigInteger),
    Index(
        "monitors_running",
        "model",
        "subject",
        unique=True,
        sqlite_where=text("ended_at IS NULL"),
        postgresql_where=text("ended_at IS NULL"),
    ),
    Index(
        "monitors_fired",
        "model",
        "certificate",
        sqlite_where=text("fired_at IS NOT NULL"),
        postgresql_where=text("fired_at IS NOT NULL"),
    ),
)

# Revisions that are scored beside a model's active one. number identifies what was put under a name, since its last
# change; it counts over all models. columns are those of its table, which requests may have although the active
# revision does not know them.
challengers = Table(
    "challengers",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("name", KEY, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("revision", Text, nullable=False),
    Column("share", Double, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("columns", JSON(none_as_null=True)),
)

# What challengers of other bundles made of predictions: logits as in predictions, whose id and time these are.
challenger_scores = Table(
    "challenger_scores",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("challenger", BigInteger, primary_key=True, autoincrement=False),
    Column("created_at", BigInteger, nullable=False),
    Column("logits", LargeBinary, nullable=False),
    Index("challenger_scores_by_time", "challenger", "created_at"),
    sqlite_with_rowid=False,
)

# Groups with a label that a challenger's comparison has counted; monitor is the comparison's row there.
compared_groups = Table(
    "compared_groups",
    metadata,
    Column("monitor", BigInteger, primary_key=True, autoincrement=False),
    Column("cluster", BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

# Latest estimates of a model's traffic.
estimates = Table(
    "estimates",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("revision", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("document", JSON, nullable=False),
)

# Predictions of a model's large days (since the epoch, UTC): rows before the time through.
daily_rows = Table(
    "daily_rows",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("rows", BigInteger, nullable=False),
    Column("through", BigInteger, nullable=False),
)

# A model's test of input drift; subject identifies the reference. change counts the writes of all replicas.
drift = Table(
    "drift",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("subject", Text, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("level", Double, nullable=False),
    Column("revision", Text, nullable=False),
    Column("change", BigInteger, nullable=False),
    Column("document", JSON, nullable=False),
)

# The latest guard of each model's activations: since and until bound its window, rows are the groups of its last test.
guards = Table(
    "guards",
    metadata,
    Column("model", KEY, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("revision", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("max_change", Double, nullable=False),
    Column("claims", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("looks", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("document", JSON, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("model", KEY, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("request", JSON, nullable=False),
    Column("by", Text, nullable=False),
    Column("progress", Text, nullable=False),
    Column("result", JSON(none_as_null=True)),
    Column("error", JSON(none_as_null=True)),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("starts", Integer, nullable=False, server_default="0"),
    Column("by_key", Text),
    Column("step", Integer, nullable=False, server_default="0"),
    Column("looks", JSON(none_as_null=True)),
    Column("outcome", JSON(none_as_null=True)),
    Column("ending", Boolean, nullable=False, server_default=false()),
    Index("jobs_unfinished", "state"),
)

# Uploaded labelled sets; incomplete until `whole`. labels has counts by name, in the order of the rows' codes; dtype
# and shape are those of one row's values.
labelled_sets = Table(
    "labelled_sets",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("model", KEY, nullable=False),
    Column("model_digest", KEY, nullable=False),
    Column("sha256", KEY, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("represents", Text),
    Column("labels", JSON, nullable=False),
    Column("segments", JSON, nullable=False),
    Column("dtype", Text, nullable=False),
    Column("shape", JSON, nullable=False),
    Column("by", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("whole", Boolean, nullable=False),
    Column("by_key", Text),
    UniqueConstraint("model", "model_digest", "sha256", name="labelled_sets_content"),
)

# Their rows in chunks of a few MB: each column is a little-endian array, NULL if the set does not have it.
labelled_rows = Table(
    "labelled_rows",
    metadata,
    Column("set", BigInteger, primary_key=True, autoincrement=False),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("rows", Integer, nullable=False),
    *(Column(name, LargeBinary, nullable=False) for name in ("values", "label", "cluster")),
    *(Column(name, LargeBinary) for name in ("propensity", "predicted_at", "labelled_at", "segment")),
)

# Append-only: triggers refuse UPDATE and DELETE.
audit = Table(
    "audit",
    metadata,
    Column("id", COUNTED, Identity(), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("model", KEY),
    Column("by", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", JSON, nullable=False),
    Index("audit_by_model", "model", "id"),
)

# The hash chain over the audit log, see `audit_chain`; append-only too.
audit_links = Table(
    "audit_links",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("entry", BigInteger, nullable=False),
    Column("head", LargeBinary, nullable=False),
    UniqueConstraint("entry", name="audit_links_entry"),
)

# Ids of the predictions that a key was answered, by entry of the audit log and model; compressed, see `answered_ids`.
answered_ids = Table(
    "answered_ids",
    metadata,
    Column("entry", BigInteger, primary_key=True, autoincrement=False),
    Column("model", KEY, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("ids", LargeBinary, nullable=False),
    Index("answered_ids_by_time", "at"),
)

# digest is the SHA-256 of the whole secret text.
api_keys = Table(
    "api_keys",
    metadata,
    Column("prefix", KEY, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scopes", JSON, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
    Column("requests_per_s", Double),
    Column("models", JSON(none_as_null=True)),
    Column("source", Text),
    Column("rows_per_s", Double),
)

# Sessions of the dashboard; digest is that of the text in the browser's cookie, see `SessionStore`.
sessions = Table(
    "sessions",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("key", KEY, nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("used_at", BigInteger, nullable=False),
    Column("name", Text),
    Column("groups", JSON(none_as_null=True)),
    Column("issuer", Text),
)

# Logins through an identity provider that have opened a session, so that none opens another.
used_logins = Table(
    "used_logins",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("at", BigInteger, nullable=False),
)
