"""Ids of all predictions that a key was answered, sealed by the audit log.

Each entry `predict` of the log has the SHA-256 of the ids per model; the ids themselves are in a table of their own,
since retention deletes them with the predictions, and the log is never pruned.
"""

from __future__ import annotations

import hashlib
import zlib
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, insert, select

from service.ids import CODE, id_of
from service.state.partitions import time_of_id
from service.state.tables import answered_ids, audit, revisions
from service.times import iso, microseconds

ACTION: Final = "predict"
DIGEST: Final = "sha256"
ID_BYTES: Final = 26
_LEVEL: Final = 1
_AT_ONCE: Final = 100
_BEFORE_US: Final = 60_000_000  # difference of clocks
_AFTER_US: Final = 86_400_000_000  # an entry waits while the database does not answer


class Sender(NamedTuple):
    """The key that a prediction was answered to.

    Attributes:
        key: Prefix of the key, or id of the person.
        name: Name of its holder at that time.
        model: The model.
        entry: The entry of the audit log that seals it.
        at: Time of the entry, microseconds since the epoch.
        whole: Whether the ids are those that the entry seals.
    """

    key: str
    name: str
    model: str
    entry: int
    at: int
    whole: bool


def digest_of(ids: bytes | bytearray) -> str:
    """Return what an entry says of ids: the SHA-256 of all of them, one after the other, in hex."""
    return hashlib.sha256(ids).hexdigest()


def keep(connection: Connection, entry: int, at: int, model: str, ids: bytes | bytearray) -> None:
    """Write the ids of a model, in the transaction of their entry.

    Args:
        connection: Of the transaction.
        entry: Id of the entry.
        at: Its time.
        model: Name of the model.
        ids: All ids, one after the other, each of 26 characters.
    """
    connection.execute(insert(answered_ids).values(entry=entry, at=at, model=model, ids=zlib.compress(ids, _LEVEL)))


def delete_before(connection: Connection, before_us: int) -> int:
    """Delete the ids of older entries; return the number of rows."""
    return connection.execute(delete(answered_ids).where(answered_ids.c.at < before_us)).rowcount


def find(connection: Connection, id_: str) -> Sender | None:
    """Return the sender of a prediction, None where no ids have it.

    Args:
        connection: Inside a transaction.
        id_: Id of the prediction: of a row, or of a row in the log of one label of a multi-label model.
    """
    start, time_us = id_[:-CODE].encode(), time_of_id(id_)
    models = connection.scalars(select(revisions.c.model).where(revisions.c.model.contains("--")).distinct())
    labels = [model for model in models if id_of(id_, model) == id_]
    near = answered_ids.c.at.between(time_us - _BEFORE_US, time_us + _AFTER_US)
    joined = answered_ids.join(audit, audit.c.id == answered_ids.c.entry)
    query = select(answered_ids, audit.c.subject, audit.c.by, audit.c.detail).select_from(joined).where(near)
    ordered = query.order_by(answered_ids.c.at).execution_options(yield_per=_AT_ONCE)
    with connection.execute(ordered) as result:
        for row in result:
            ids = _unpacked(row.ids)
            place = ids.find(start)
            while place > 0 and place % ID_BYTES:
                place = ids.find(start, place + 1)
            if place < 0:
                continue
            exact = ids[place : place + ID_BYTES] == id_.encode()
            if exact or any(label.startswith(f"{row.model}--") for label in labels):
                whole = row.detail["models"].get(row.model, {}).get(DIGEST) == digest_of(ids)
                return Sender(row.subject, row.by, row.model, row.entry, row.at, whole)
    return None


def verify(connection: Connection) -> str | None:
    """Return the first difference between the entries and the ids; None without one.

    Ids that a recorded run of retention deleted are missing, as they should be.

    Args:
        connection: Inside a transaction that sees one snapshot.
    """
    pruned = 0
    for detail in connection.scalars(select(audit.c.detail).where(audit.c.action == "prune")):
        if "before" in detail:
            pruned = max(pruned, microseconds(datetime.fromisoformat(detail["before"])))
    beside = audit.outerjoin(answered_ids, answered_ids.c.entry == audit.c.id)
    columns = (audit.c.id, audit.c.at, audit.c.subject, audit.c.detail, answered_ids.c.model, answered_ids.c.ids)
    query = select(*columns).select_from(beside).where(audit.c.action == ACTION).order_by(audit.c.id)
    before: Any = None
    missing: set[str] = set()
    with connection.execute(query.execution_options(yield_per=_AT_ONCE)) as result:
        for row in result:
            if before is None or row.id != before.id:
                if missing and before.at >= pruned:
                    return _said(before, sorted(missing)[0], "were deleted")
                missing = {model for model, counts in row.detail["models"].items() if counts.get(DIGEST)}
            before = row
            if row.model is None:
                continue
            missing.discard(row.model)
            if row.detail["models"].get(row.model, {}).get(DIGEST) != digest_of(_unpacked(row.ids)):
                return _said(row, row.model, "were changed after they were written")
    if missing and before.at >= pruned:
        return _said(before, sorted(missing)[0], "were deleted")
    others = answered_ids.outerjoin(audit, (audit.c.id == answered_ids.c.entry) & (audit.c.action == ACTION))
    stray = select(answered_ids.c.entry).select_from(others).where(audit.c.id.is_(None)).limit(1)
    if (entry := connection.scalar(stray)) is not None:
        return f"Prediction ids were added: their entry {entry} is not in the log."
    return None


def _said(row: Any, model: str, what: str) -> str:
    return f"The prediction ids of entry {row.id} ({model} by the key {row.subject}, {iso(row.at)}) {what}."


def _unpacked(ids: bytes) -> bytes:
    try:
        return zlib.decompress(ids)
    except zlib.error:
        return b""
