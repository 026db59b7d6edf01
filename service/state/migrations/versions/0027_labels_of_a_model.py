"""Index of a model's labels by kind and time."""

from service.state.migrations.versions import create_index

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    columns = ["(model || '')", "by_reference", "received_at"]
    create_index("feedback_of_model", "feedback", columns, after=down_revision)
