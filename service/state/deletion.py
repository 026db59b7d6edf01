"""Delete predictions with their inputs, challengers' scores, and the labels that belong to them alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple, dataclass

from sqlalchemy import ColumnElement, Connection, CursorResult, delete, exists, select

from service.state.tables import (
    cases,
    challenger_scores,
    feedback,
    feedback_batches,
    inputs,
    origins,
    predictions,
)
from service.state.window import FOUND_OTHERWISE

ROWS_PER_TRANSACTION = 500  # about 15 ms of SQLite's single writer
PAUSE_S = 0.005  # between transactions: other processes of the service ask for their turn every millisecond


@dataclass(frozen=True, slots=True)
class Deleted:
    """Numbers of deleted rows: predictions, stored inputs, labels, receipts of feedback requests, and cases."""

    predictions: int = 0
    inputs: int = 0
    labels: int = 0
    receipts: int = 0
    cases: int = 0

    def __add__(self, other: Deleted) -> Deleted:
        return Deleted(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __bool__(self) -> bool:
        return any(astuple(self))


def delete_predictions(
    connection: Connection, model: str, rows: Sequence[tuple[str, str | None]], *, receipts: bool
) -> Deleted:
    """Delete predictions of one model, their inputs, their cases, and their labels.

    A label by reference is deleted with the last prediction that carries the reference.

    Args:
        connection: Inside a write transaction.
        model: The model.
        rows: Prediction ids with references, maximum `ROWS_PER_TRANSACTION`; unknown ids are ignored.
        receipts: Whether to delete the receipts of the labels' requests too.
    """
    ids = [id_ for id_, _ in rows]
    count = _count(connection.execute(delete(predictions).where(predictions.c.id.in_(ids))))
    kept = _count(connection.execute(delete(inputs).where(inputs.c.id.in_(ids))))
    reviewed = _count(connection.execute(delete(cases).where(cases.c.id.in_(ids))))
    connection.execute(delete(challenger_scores).where(challenger_scores.c.id.in_(ids)))
    named = {reference for _, reference in rows if reference is not None}
    still = select(predictions.c.reference).join(origins, origins.c.id == FOUND_OTHERWISE)
    named -= set(connection.scalars(still.where(origins.c.model == model, predictions.c.reference.in_(named))))
    return (
        Deleted(predictions=count, inputs=kept, cases=reviewed)
        + delete_labels(connection, model, 0, ids, receipts=receipts)
        + delete_labels(connection, model, 1, named, receipts=receipts)
    )


def delete_labels(
    connection: Connection,
    model: str,
    by_reference: int,
    targets: Iterable[str],
    *,
    receipts: bool,
    before_us: int | None = None,
) -> Deleted:
    """Delete a model's labels of these targets.

    Args:
        connection: Inside a write transaction.
        model: The model.
        by_reference: 0 if the targets are prediction ids, 1 if they are references.
        targets: Targets, maximum `ROWS_PER_TRANSACTION`.
        receipts: Whether to delete the receipts of the labels' requests too.
        before_us: Only labels received before this time.
    """
    which: list[ColumnElement[bool]] = [
        feedback.c.target.in_(list(targets)),
        feedback.c.by_reference == by_reference,
        feedback.c.model == model,
    ]
    if before_us is not None:
        which.append(feedback.c.received_at < before_us)
    mentioned = set(connection.scalars(select(feedback.c.batch).where(*which))) if receipts else set[int]()
    labels = _count(connection.execute(delete(feedback).where(*which)))
    return Deleted(labels=labels, receipts=drop_receipts(connection, model, mentioned) if mentioned else 0)


def drop_receipts(connection: Connection, model: str, batches: Collection[int]) -> int:
    """Delete the receipts of requests, and return their number: a repetition of one is stored again.

    A request that still has labels keeps its row, which names their sender.

    Args:
        connection: Inside a write transaction.
        model: The model.
        batches: Numbers of the requests, maximum `ROWS_PER_TRANSACTION`.
    """
    requests = feedback_batches.c.model == model, feedback_batches.c.batch.in_(batches)
    left = exists().where(feedback.c.model == feedback_batches.c.model, feedback.c.batch == feedback_batches.c.batch)
    kept = *requests, feedback_batches.c.idempotency_key.is_not(None)
    receipt = {"idempotency_key": None, "body_digest": None, "receipt": None}
    receipts = _count(connection.execute(feedback_batches.update().where(*kept).values(**receipt)))
    connection.execute(delete(feedback_batches).where(*requests, ~left))
    return receipts


def unknown_target(by_reference: int) -> ColumnElement[bool]:
    """Return the condition that a row of `feedback` matches no prediction of its model."""
    name = predictions.c.reference if by_reference else predictions.c.id
    known = exists().where(
        name == feedback.c.target, origins.c.id == FOUND_OTHERWISE, origins.c.model == feedback.c.model
    )
    return (feedback.c.by_reference == by_reference) & ~known


def in_parts(step: Callable[[], tuple[Deleted, bool]], stopped: Callable[[], bool]) -> Deleted:
    """Add up the deletions of steps until the last step or a stop; between two steps, others write."""
    total, more = step() if not stopped() else (Deleted(), False)
    while more and not stopped():
        time.sleep(PAUSE_S)
        part, more = step()
        total += part
    return total


def _count(result: CursorResult[tuple[()]]) -> int:
    return result.rowcount
