"""Retention: count and delete old rows, a few at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, func, select

from service.state import answered_ids, audit
from service.state.database import Database, now_us
from service.state.deletion import (
    ROWS_PER_TRANSACTION,
    Deleted,
    delete_labels,
    delete_predictions,
    in_parts,
    unknown_target,
)
from service.state.expiry import cover_ahead, drop_before
from service.state.tables import cases, feedback, feedback_batches, inputs, origins, predictions
from service.times import DAY_US, iso

LOCK = "retention"

Step = Callable[[Connection], tuple[Deleted, bool]]


def prune(
    database: Database,
    before_us: int | None,
    *,
    inputs_before_us: int | None = None,
    by: str,
    stopped: Callable[[], bool] = lambda: False,
) -> Deleted:
    """Delete old predictions with their labels, inputs and senders, old labels without a prediction, and old receipts.

    Transactions are small, so other writers do not wait long. After a stop or a crash the next run deletes the rest.
    PostgreSQL drops partitions without a younger row whole.
    The audit log gets the counts.

    Args:
        database: The state.
        before_us: Rows before this time are deleted, in microseconds since the epoch; None deletes only inputs.
        inputs_before_us: Inputs before this time are deleted, even if their predictions stay.
        by: Actor for the audit log.
        stopped: Returns whether to stop; called between transactions.

    Raises:
        StateUnavailableError: The database does not answer.
    """
    steps: list[Step] = []
    if before_us is not None:
        with database.connect() as connection:
            made_by = connection.execute(select(origins.c.id, origins.c.model).order_by(origins.c.id)).all()
        steps += [_predictions_of(origin, model, before_us) for origin, model in made_by]
        steps += [_pending(by_reference, before_us) for by_reference in (0, 1)]
        steps.append(_receipts(before_us))
    if inputs_before_us is not None:
        steps.append(_inputs(inputs_before_us))
    total = Deleted()
    if database.engine.dialect.name == "postgresql":
        total += drop_before(database, before_us, inputs_before_us, stopped)
    for step in steps:

        def in_transaction(step: Step = step) -> tuple[Deleted, bool]:
            with database.begin() as connection:
                return step(connection)

        total += in_parts(in_transaction, stopped)
    ids = 0
    if before_us is not None:
        with database.begin() as connection:
            ids = answered_ids.delete_before(connection, before_us)
    if total or ids:
        named = {"before": before_us, "inputs_before": inputs_before_us}
        times = {key: iso(time) for key, time in named.items() if time is not None}
        with database.begin() as connection:
            audit.append(
                connection, model=None, by=by, action="prune", subject="rows", detail={**asdict(total), **times}
            )
    return total


def count_older(database: Database, before_us: int) -> Deleted:
    """Return what `prune` would delete.

    Args:
        database: The state.
        before_us: Microseconds since the epoch.

    Raises:
        StateUnavailableError: The database does not answer.
    """
    with database.connect() as connection:
        made_by = connection.execute(select(origins.c.id, origins.c.model)).all()

        def count(query: Select[Any]) -> int:
            return int(connection.execute(query).scalar_one())

        rows = inputs_of_rows = labels = reviewed = 0
        for origin, model in made_by:
            old = (predictions.c.origin == origin, predictions.c.created_at < before_us)
            rows += count(select(func.count()).select_from(predictions).where(*old))
            beside = predictions.join(inputs, inputs.c.id == predictions.c.id)
            inputs_of_rows += count(select(func.count()).select_from(beside).where(*old))
            queued = predictions.join(cases, cases.c.id == predictions.c.id)
            reviewed += count(select(func.count()).select_from(queued).where(*old))
            for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
                about = predictions.join(feedback, feedback.c.target == name)
                of_model = (feedback.c.by_reference == by_reference, feedback.c.model == model)
                query = select(func.count()).select_from(about).where(*old, *of_model)
                labels += count(query.where(~_carried_on(model, before_us)) if by_reference else query)
        for by_reference in (0, 1):
            pending = (feedback.c.received_at < before_us, unknown_target(by_reference))
            labels += count(select(func.count()).select_from(feedback).where(*pending))
        receipts = count(
            select(func.count()).select_from(feedback_batches).where(feedback_batches.c.received_at < before_us)
        )
    return Deleted(rows, inputs_of_rows, labels, receipts, reviewed)


class Retention:
    """Deletes old rows, on one replica at a time; makes PostgreSQL's partitions ahead.

    On PostgreSQL, rows go with the last of their day (UTC), so that whole partitions are dropped.

    Args:
        database: The state.
        days: Maximum age of predictions with their labels and inputs; None keeps them.
        inputs_days: Maximum age of stored inputs; None keeps them as long as their predictions.

    Attributes:
        deleted: Rows deleted by this replica since the start.
    """

    def __init__(self, database: Database, *, days: float | None, inputs_days: float | None) -> None:
        self._database = database
        self._days = days
        self._inputs_days = inputs_days
        self._partitioned = database.engine.dialect.name == "postgresql"
        self._stopping = threading.Event()
        self._running = threading.Lock()
        self.deleted = Deleted()

    @property
    def needed(self) -> bool:
        """Whether there is something to do: a maximum age is set, or there are partitions."""
        return self._days is not None or self._inputs_days is not None or self._partitioned

    def run(self) -> None:
        """Delete old rows and make partitions, unless another replica does.

        Raises:
            StateUnavailableError: The database does not answer.
        """
        with self._running, self._database.try_lock(LOCK) as mine:
            if mine and self._partitioned:
                cover_ahead(self._database)
            if mine:
                self.deleted += prune(
                    self._database,
                    self._ago(self._days),
                    inputs_before_us=self._ago(self._inputs_days),
                    by="retention",
                    stopped=self._stopping.is_set,
                )

    def close(self) -> None:
        """Stop after the current transaction."""
        self._stopping.set()
        with self._running:
            pass

    def _ago(self, days: float | None) -> int | None:
        if days is None:
            return None
        ago = now_us() - round(days * DAY_US)
        return ago - ago % DAY_US if self._partitioned else ago


def old_predictions(origin: int, before_us: int) -> Select[str, str | None]:
    """Return the query of one origin's oldest predictions, with their references."""
    old = (predictions.c.origin == origin, predictions.c.created_at < before_us)
    query = select(predictions.c.id, predictions.c.reference).where(*old)
    return query.order_by(predictions.c.created_at).limit(ROWS_PER_TRANSACTION)


def old_targets(by_reference: int, before_us: int) -> Select[str, str]:
    """Return the query of models and targets of the oldest labels without a prediction."""
    pending = (feedback.c.received_at < before_us, unknown_target(by_reference))
    query = select(feedback.c.model, feedback.c.target).where(*pending)
    return query.order_by(feedback.c.received_at).limit(ROWS_PER_TRANSACTION)


def old_requests(before_us: int) -> Select[str, int]:
    """Return the query of models and numbers of the oldest feedback requests."""
    query = select(feedback_batches.c.model, feedback_batches.c.batch).where(feedback_batches.c.received_at < before_us)
    return query.order_by(feedback_batches.c.received_at).limit(ROWS_PER_TRANSACTION)


def old_inputs(before_us: int) -> Select[str]:
    """Return the query of the oldest kept inputs."""
    query = select(inputs.c.id).where(inputs.c.created_at < before_us)
    return query.order_by(inputs.c.created_at).limit(ROWS_PER_TRANSACTION)


def _predictions_of(origin: int, model: str, before_us: int) -> Step:
    def step(connection: Connection) -> tuple[Deleted, bool]:
        rows = [(id_, reference) for id_, reference in connection.execute(old_predictions(origin, before_us))]
        return delete_predictions(connection, model, rows, receipts=False), len(rows) == ROWS_PER_TRANSACTION

    return step


def _pending(by_reference: int, before_us: int) -> Step:
    def step(connection: Connection) -> tuple[Deleted, bool]:
        rows = sorted((model, target) for model, target in connection.execute(old_targets(by_reference, before_us)))
        total = Deleted()
        for model, own in groupby(rows, key=lambda row: row[0]):
            targets = {target for _, target in own}
            total += delete_labels(connection, model, by_reference, targets, receipts=False, before_us=before_us)
        return total, len(rows) == ROWS_PER_TRANSACTION

    return step


def _receipts(before_us: int) -> Step:
    def step(connection: Connection) -> tuple[Deleted, bool]:
        rows = sorted((model, batch) for model, batch in connection.execute(old_requests(before_us)))
        for model, own in groupby(rows, key=lambda row: row[0]):
            batches = [batch for _, batch in own]
            gone = delete(feedback_batches).where(feedback_batches.c.model == model)
            connection.execute(gone.where(feedback_batches.c.batch.in_(batches)))
        return Deleted(receipts=len(rows)), len(rows) == ROWS_PER_TRANSACTION

    return step


def _inputs(before_us: int) -> Step:
    def step(connection: Connection) -> tuple[Deleted, bool]:
        ids = list(connection.scalars(old_inputs(before_us)))
        connection.execute(delete(inputs).where(inputs.c.id.in_(ids)))
        return Deleted(inputs=len(ids)), len(ids) == ROWS_PER_TRANSACTION

    return step


def _carried_on(model: str, before_us: int) -> ColumnElement[bool]:
    """Return the condition that a younger prediction of the model has the same reference."""
    younger = predictions.alias()
    return (
        select(younger.c.id)
        .join(origins, origins.c.id == younger.c.origin + 0)  # as `FOUND_OTHERWISE`
        .where(
            younger.c.reference == predictions.c.reference,
            younger.c.created_at >= before_us,
            origins.c.model == model,
        )
        .correlate(predictions)
        .exists()
    )
