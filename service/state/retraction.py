"""Take back labels of one model by the key that sent them, their source, and when they came."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, select, tuple_

from service.state import audit
from service.state.database import Database
from service.state.deletion import PAUSE_S, ROWS_PER_TRANSACTION, drop_receipts
from service.state.tables import feedback, feedback_batches
from service.times import iso

_KEY = (feedback.c.batch, feedback.c.position)  # of a model
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of a model. Each part that is None leaves them all in.

    Attributes:
        model: The model.
        by: Name of the key that sent them; later keys may have the same name.
        key: Prefix of that key.
        source: Their source.
        since: Received at this time or later, in microseconds since the epoch.
        until: Received before this time.
    """

    model: str
    by: str | None = None
    key: str | None = None
    source: str | None = None
    since: int | None = None
    until: int | None = None

    def document(self) -> dict[str, str]:
        """Return the parts that are given, for the audit log."""
        times = {"since": self.since, "until": self.until}
        named = {"by": self.by, "key": self.key, "source": self.source}
        named |= {key: None if us is None else iso(us) for key, us in times.items()}
        return {key: text for key, text in named.items() if text is not None}


def find(database: Database, labels: Labels) -> Iterator[Row[Any]]:
    """Yield labels with `by`, `by_key` and `received_at`, in the order in which they came.

    Raises:
        StateUnavailableError: The database does not answer.
    """
    for page in _pages(database, labels):
        yield from page


def retract(database: Database, labels: Labels, *, by: str, reason: str) -> int:
    """Delete labels, and the receipts of their requests; what was said before counts again. Return their number.

    Cases that they ended stay done, and what monitors and earlier recalibrations made of them stays. The audit log gets
    the parts by which they were found, the reason and the number.

    Args:
        database: The state.
        labels: The labels.
        by: Actor for the audit log.
        reason: Reason for the audit log.

    Raises:
        StateUnavailableError: The database does not answer; part of them may be gone, and another call goes on.
    """
    total = 0
    for page in _pages(database, labels):  # found outside of the write transactions, which others wait for
        with database.begin() as connection:
            batches = {row.batch for row in page}  # also for SQLite, which looks no pairs up in an index
            here = feedback.c.model == labels.model, feedback.c.batch.in_(batches)
            total += connection.execute(delete(feedback).where(*here, tuple_(*_KEY).in_(map(_key, page)))).rowcount
            drop_receipts(connection, labels.model, batches)
        time.sleep(PAUSE_S)
    with database.begin() as connection:
        detail = {**labels.document(), "labels": total, "reason": reason}
        audit.append(connection, model=labels.model, by=by, action="retract_labels", subject="labels", detail=detail)
    return total


def _pages(database: Database, labels: Labels) -> Iterator[Sequence[Row[Any]]]:
    """Yield the labels in pages, in one pass over their requests."""
    for batches in _requests(database, labels):
        last: _Key | None = None
        while True:
            with database.connect() as connection:
                page = _page(connection, labels, batches, last)
            if page:
                yield page
            if len(page) < ROWS_PER_TRANSACTION:
                break
            last = _key(page[-1])


def _requests(database: Database, labels: Labels) -> Iterator[Sequence[int] | None]:
    """Yield the numbers of a sender's requests in parts, or None once for all requests."""
    if labels.by is None and labels.key is None:
        yield None
        return
    requests = feedback_batches.c
    query = select(requests.batch).where(requests.model == labels.model)
    for column, wanted in ((requests.by, labels.by), (requests.by_key, labels.key)):
        if wanted is not None:
            query = query.where(column == wanted)
    last = -1
    while True:
        with database.connect() as connection:
            later = query.where(requests.batch > last).order_by(requests.batch).limit(ROWS_PER_TRANSACTION)
            batches = list(connection.scalars(later))
        if not batches:
            return
        yield batches
        last = batches[-1]


def _page(
    connection: Connection, labels: Labels, batches: Sequence[int] | None, after: _Key | None
) -> Sequence[Row[Any]]:
    same = and_(feedback_batches.c.model == feedback.c.model, feedback_batches.c.batch == feedback.c.batch)
    columns = ["target", "by_reference", "label", "source", "labelled_at", "received_at", "batch", "position"]
    named: list[ColumnElement[Any]] = [feedback.c[name] for name in columns]
    sender = feedback_batches.c.by, feedback_batches.c.by_key
    query: Select[Any] = select(*named, *sender).join(feedback_batches, same, isouter=True)
    query = query.where(feedback.c.model == labels.model)
    if batches is not None:
        query = query.where(feedback.c.batch.in_(batches))
    if labels.source is not None:
        query = query.where(feedback.c.source == labels.source)
    if labels.since is not None:
        query = query.where(feedback.c.received_at >= labels.since)
    if labels.until is not None:
        query = query.where(feedback.c.received_at < labels.until)
    if after is not None:
        query = query.where(tuple_(*_KEY) > after)
    return list(connection.execute(query.order_by(*_KEY).limit(ROWS_PER_TRANSACTION)))


def _key(row: Row[Any]) -> _Key:
    return row.batch, row.position
