"""Logged predictions without labels, which claims about all traffic must include."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Exists, select

from service.decisions.rows import Rows
from service.state.rescoring import Rescoring, other_origins, with_inputs
from service.state.rows import RowReader
from service.state.tables import feedback, predictions
from service.state.window import FOUND_OTHERWISE, Window

# Older ones are left out and reported: a claim about all traffic is then about the traffic since.
MOST_ROWS = 500_000


def load_unlabelled_rows(
    connection: Connection, window: Window, *, classes: int, at_most: int | None = None, again: Rescoring | None = None
) -> tuple[Rows, int | None]:
    """Return the most recent unlabelled predictions of a window.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        classes: Number K of the model's labels.
        at_most: Maximum rows; None for `MOST_ROWS`.
        again: Read rows of earlier models that can be scored again, instead of the window's own.

    Returns:
        The rows, oldest first, and the time from which none is left out, in microseconds since the epoch; None if none
        is.
    """
    at_most = MOST_ROWS if at_most is None else at_most
    made_here = window.origins(connection) if again is None else again.origins(connection, window)
    newest = (
        select(predictions.c.id)
        .where(predictions.c.origin.in_(made_here), *window.times())
        .where(*(~label for label in _labels(connection, window.model)))
        .order_by(predictions.c.created_at.desc(), predictions.c.id.desc())
        .limit(at_most)
        .subquery()
    )
    reader = RowReader(classes, again=again)
    query = reader.query().join_from(predictions, newest, newest.c.id == predictions.c.id)
    if again is not None:
        query = with_inputs(query)
    query = query.order_by(predictions.c.created_at, predictions.c.id)
    rows = reader.rows(reader.read(connection, [query]))
    # Other rows of the oldest row's microsecond may be left out.
    return rows, int(rows.predicted_at[0]) + 1 if len(rows) == at_most else None


def _labels(connection: Connection, model: str) -> list[Exists]:
    """Return the conditions that a prediction has a label: by id and, if the model has any, by reference.

    The first uses an index only, the second reads each prediction's row.
    """
    by_id, by_reference = (
        select(feedback.c.target).where(feedback.c.model == model, feedback.c.by_reference == kind) for kind in (0, 1)
    )
    labels = [by_id.where(feedback.c.target == predictions.c.id).exists()]
    if connection.execute(by_reference.limit(1)).first() is not None:
        labels.append(by_reference.where(feedback.c.target == predictions.c.reference).exists())
    return labels


def count_labelled(connection: Connection, window: Window, *, at_most: int, input_spec: str | None = None) -> int:
    """Return how many predictions of a window have a label, up to `at_most`.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        at_most: Maximum count.
        input_spec: Include earlier models with these inputs, even if the inputs were not stored.
    """
    origin: ColumnElement[int] = predictions.c.origin
    target: ColumnElement[str] = feedback.c.target
    if window.since_us is None:  # from labels to predictions: `|| ''` makes SQLite choose this order
        origin, target = FOUND_OTHERWISE, target + ""
    made_here, found = window.origins(connection), set[str]()
    if input_spec is not None:
        made_here += other_origins(connection, window, input_spec)
    for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
        query = (
            select(predictions.c.id)
            .join(feedback, name == target)
            .where(feedback.c.model == window.model, feedback.c.by_reference == by_reference)
            .where(origin.in_(made_here), *window.times())
            .distinct()
            .limit(at_most)
        )
        found.update(connection.scalars(query))
        if len(found) >= at_most:
            break
    return min(len(found), at_most)
