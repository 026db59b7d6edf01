"""What a group's predictions were, newest first: the context of a case.

The log marks the rows that a policy with a review queue decides for a group of the client's. Only these are indexed by
group, so that other rows cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select

from service.state.database import Database
from service.state.resolution import rank
from service.state.tables import cases, feedback, origins, predictions

MOST_READ: Final = 1_000
"""Newest rows of a group, of all models, among which those of a model are looked for."""


@dataclass(frozen=True, slots=True)
class Past:
    """A logged prediction of a group.

    Attributes:
        id: Its id.
        created_at: When it was made, in microseconds since the epoch, UTC.
        reference: The client's reference.
        action: What was decided.
        amount: Amount at stake.
        logits: Scores of the model, little-endian float32.
        confidence: Probability of the predicted label.
        origin: Number of its origin.
        revision: Revision that predicted.
        label: Its current label; None without one.
        lease_until: When the claim of its case expires; None without a claim or a case.
        outcome: How its case ended; None while it waits or without a case.
        case: Whether it is a case.
    """

    id: str
    created_at: int
    reference: str | None
    action: str | None
    amount: float | None
    logits: bytes
    confidence: float
    origin: int
    revision: str
    label: str | None
    lease_until: int | None
    outcome: str | None
    case: bool

    def state(self, now: int) -> str | None:
        """Return the state of its case at a time; None if it is not a case."""
        if not self.case:
            return None
        return self.outcome or ("claimed" if (self.lease_until or 0) > now else "open")


def history(database: Database, model: str, group: int, *, without: str, limit: int) -> list[Past]:
    """Return the latest other predictions of a group, newest first.

    Args:
        database: The state.
        model: The model.
        group: Keyed hash of the group.
        without: Id of the prediction to leave out.
        limit: Maximum number.
    """
    logged = predictions.c
    newest = select(logged.id).where(logged.cluster == group, logged.in_history).order_by(logged.id.desc())
    with database.connect() as connection:
        made_here = dict(
            map(tuple, connection.execute(select(origins.c.id, origins.c.revision).where(origins.c.model == model)))
        )
        ids = [id_ for id_ in connection.scalars(newest.limit(MOST_READ)) if id_ != without]
        rows = []
        for start in range(0, len(ids), limit):  # usually all are of the model
            query = select(*_COLUMNS).where(logged.id.in_(ids[start : start + limit]))
            rows += [row for row in connection.execute(query) if row.origin in made_here]
            if len(rows) >= limit:
                break
        rows = sorted(rows, key=lambda row: row.id, reverse=True)[:limit]
        labels = _labels(connection, model, [(row.id, row.reference) for row in rows])
        query = select(cases.c.id, cases.c.lease_until, cases.c.outcome).where(cases.c.id.in_([row.id for row in rows]))
        waiting = {row.id: row._asdict() for row in connection.execute(query)}
    return [
        Past(
            **row._asdict() | waiting.get(row.id, {"lease_until": None, "outcome": None}),
            revision=made_here[row.origin],
            label=labels.get(row.id),
            case=row.id in waiting,
        )
        for row in rows
    ]


_COLUMNS: Final = [
    predictions.c[name]
    for name in ("id", "created_at", "reference", "action", "amount", "logits", "confidence", "origin")
]


def _labels(connection: Connection, model: str, rows: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """Return the current label of each of a few predictions that has one, by id."""
    said = feedback.c
    named: dict[str, list[str]] = {}  # a reference may name several
    for id_, reference in rows:
        if reference is not None:
            named.setdefault(reference, []).append(id_)
    best: dict[str, tuple[tuple[int, ...], str]] = {}
    for by_reference, ids in enumerate(({id_: [id_] for id_, _ in rows}, named)):
        of_these = said.model == model, said.by_reference == by_reference, said.target.in_(ids)
        for target, label, *of in connection.execute(select(*_LABEL).where(*of_these)) if ids else ():
            for id_ in ids[target]:
                best[id_] = max(best.get(id_, ((), "")), (rank(*of), label))
    return {id_: label for id_, (_, label) in best.items()}


_LABEL: Final = [
    feedback.c[name] for name in ("target", "label", "source", "labelled_at", "received_at", "batch", "position")
]
