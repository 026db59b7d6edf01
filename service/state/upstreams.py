"""Changes of models on other servers, in the audit log."""

from __future__ import annotations

from sqlalchemy import select

from service.state import audit
from service.state.database import Database
from service.state.tables import audit as audit_log

CHANGED, RESTORED = "upstream_changed", "upstream_restored"
_BY = "monitor"


def record_upstream(database: Database, model: str, revision: str, changed: str | None) -> bool:
    """Record that a model on another server has changed, or is again as it was, unless the newest record says so.

    Args:
        database: The state.
        model: The model.
        revision: Its active revision.
        changed: How it differs from its bundle; None if it does not.

    Returns:
        Whether this is news. Of several replicas that see a change, one gets True.

    Raises:
        StateUnavailableError: The database does not answer.
    """
    known = (
        select(audit_log.c.action)
        .where(
            audit_log.c.model == model,
            audit_log.c.subject == revision,
            audit_log.c.action.in_((CHANGED, RESTORED)),
        )
        .order_by(audit_log.c.id.desc())
        .limit(1)
    )
    action = RESTORED if changed is None else CHANGED
    with database.locked(f"upstreams/{model}"), database.begin() as connection:
        if (connection.scalar(known) or RESTORED) == action:
            return False
        detail = {} if changed is None else {"found": changed}
        audit.append(connection, model=model, by=_BY, action=action, subject=revision, detail=detail)
    return True
