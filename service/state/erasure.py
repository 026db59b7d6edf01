"""Erase every prediction, input and label of one group, reference or prediction id."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal, NamedTuple

from sqlalchemy import Connection, delete, select

from bundle.split import group_hash
from service.state import audit
from service.state.database import Database
from service.state.deletion import ROWS_PER_TRANSACTION, Deleted, delete_labels, delete_predictions
from service.state.tables import compared_groups, origins, predictions
from service.state.window import FOUND_OTHERWISE

Kind = Literal["group", "reference", "prediction_id"]


class Subject(NamedTuple):
    """The rows to erase."""

    kind: Kind
    name: str


def erase(database: Database, model: str, subject: Subject, *, by: str) -> Deleted:
    """Delete all rows of a subject; the audit log gets counts and a keyed hash instead of the name.

    A group is stored as an unindexed keyed hash, so erasing one reads the model's whole log, without blocking others.
    After a crash part of the rows may be erased; the audit log records only a complete erasure.

    Args:
        database: The state.
        model: The model.
        subject: The rows to erase.
        by: Actor for the audit log.

    Raises:
        StateUnavailableError: The database does not answer.
    """
    with database.connect() as connection:
        rows = _predictions_of(connection, database.secret, model, subject)
    total = Deleted()
    for start in range(0, len(rows), ROWS_PER_TRANSACTION):
        with database.begin() as connection:
            part = rows[start : start + ROWS_PER_TRANSACTION]
            total += delete_predictions(connection, model, part, receipts=True)
    with database.begin() as connection:
        if subject.kind == "group":
            group = compared_groups.c.cluster == group_hash(database.secret, subject.name)
            connection.execute(delete(compared_groups).where(group))
        else:  # labels without a known prediction
            named_by_reference = int(subject.kind == "reference")
            total += delete_labels(connection, model, named_by_reference, [subject.name], receipts=True)
        audit.append(
            connection,
            model=model,
            by=by,
            action="erase",
            subject=_pseudonym(database.secret, subject),
            detail={"kind": subject.kind, **asdict(total)},
        )
    if total:
        database.scrub()
    return total


def _predictions_of(
    connection: Connection, secret: bytes, model: str, subject: Subject
) -> Sequence[tuple[str, str | None]]:
    column, value = {
        "group": (predictions.c.cluster, group_hash(secret, subject.name)),
        "reference": (predictions.c.reference, subject.name),
        "prediction_id": (predictions.c.id, subject.name),
    }[subject.kind]
    origin = predictions.c.origin if subject.kind == "group" else FOUND_OTHERWISE
    query = (
        select(predictions.c.id, predictions.c.reference)
        .join(origins, origins.c.id == origin)
        .where(origins.c.model == model, column == value)
    )
    return [(id_, reference) for id_, reference in connection.execute(query)]


def _pseudonym(secret: bytes, subject: Subject) -> str:
    """Return the subject's keyed hash for the audit log."""
    tagged = f"{subject.kind}:{subject.name}".encode()
    return hashlib.blake2b(tagged, key=secret, digest_size=16, person=b"candor-erase").hexdigest()
