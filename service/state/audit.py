"""The audit log: who did what, when. Rows are written in the transaction of what they record, and never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select

from service.state.database import Database, now_us
from service.state.tables import audit


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that was done.

    Attributes:
        id: Position in the log; larger is later.
        at: Microseconds since the epoch, UTC.
        model: Model that it concerns, None when it concerns the whole service.
        by: Name of the API key or person.
        action: What was done, such as "activate".
        subject: What it was done to, such as "r7".
        detail: JSON-able particulars.
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
) -> None:
    """Record something in the transaction that does it.

    Args:
        connection: That transaction's connection.
        model: Model that it concerns, None for the whole service.
        by: Who does it.
        action: What is done, such as "activate".
        subject: What it is done to, such as "r7".
        detail: JSON-able particulars.
    """
    connection.execute(
        insert(audit).values(at=now_us(), model=model, by=by, action=action, subject=subject, detail=detail or {})
    )


def read(
    database: Database, model: str | None = None, *, limit: int = 100, before: int | None = None
) -> list[AuditEntry]:
    """Return the newest entries, newest first.

    Args:
        database: The state.
        model: Only what concerns this model; None reads everything.
        limit: At most so many entries.
        before: Only entries with a smaller id: the last id of the page before.

    Raises:
        StateUnavailableError: The database does not answer.
    """
    query = select(audit).order_by(audit.c.id.desc()).limit(limit)
    if model is not None:
        query = query.where(audit.c.model == model)
    if before is not None:
        query = query.where(audit.c.id < before)
    with database.connect() as connection:
        return [AuditEntry(*row) for row in connection.execute(query)]
