"""The audit log: who did what, and when. Entries are written in the transaction that they record, and never change.

`Database.begin` links them to the hash chain at the end of the transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select

from service.state.database import UNLINKED, Database, now_us
from service.state.notices import announce
from service.state.tables import audit

ROUTINE = ("predict",)
"""Actions of which busy services write an entry a minute: which keys were used, and for what."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit log.

    Attributes:
        id: Position in the log; larger is later.
        at: Microseconds since the epoch, UTC.
        model: Model that it concerns; None for the whole service.
        by: Name of the API key or person.
        action: The action, such as "activate".
        subject: Object of the action, such as "r7".
        detail: JSON-able details.
    """

    id: int
    at: int
    model: str | None
    by: str
    action: str
    subject: str
    detail: dict[str, Any]


def append(
    connection: Connection,
    *,
    model: str | None,
    by: str,
    action: str,
    subject: str,
    detail: dict[str, Any] | None = None,
) -> tuple[int, int]:
    """Record an action in its own transaction, and announce it to all replicas; return the entry's id and time.

    Args:
        connection: Connection of the transaction.
        model: Model that it concerns; None for the whole service.
        by: Actor.
        action: The action, such as "activate".
        subject: Object of the action, such as "r7".
        detail: JSON-able details.
    """
    values = {"model": model, "by": by, "action": action, "subject": subject, "detail": detail or {}}
    at = now_us()
    entry: int = connection.execute(insert(audit).values(at=at, **values).returning(audit.c.id)).scalar_one()
    connection.info[UNLINKED].append(entry)
    announce(connection)
    return entry, at


def read(
    database: Database, model: str | None = None, *, limit: int = 100, before: int | None = None
) -> list[AuditEntry]:
    """Return the newest entries, newest first, without those of `ROUTINE`.

    Args:
        database: The state.
        model: Only entries of this model; None for all.
        limit: Maximum entries.
        before: Only entries with a smaller id (the last id of the previous page).

    Raises:
        StateUnavailableError: The database does not answer.
    """
    query = select(audit).where(audit.c.action.not_in(ROUTINE)).order_by(audit.c.id.desc()).limit(limit)
    if model is not None:
        query = query.where(audit.c.model == model)
    if before is not None:
        query = query.where(audit.c.id < before)
    with database.connect() as connection:
        return [AuditEntry(*row) for row in connection.execute(query)]
