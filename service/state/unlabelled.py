"""Logged predictions that nobody has labelled: what a claim about all traffic must not forget."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Exists, select

from service.state.columns import Codes, booleans, integers, numbers, read_columns, vectors
from service.state.rescoring import Rescoring, other_origins, with_inputs
from service.state.tables import feedback, predictions
from service.state.window import FOUND_OTHERWISE, Window

# Older ones are left out, and `since_us` says so: a claim about all traffic then concerns the traffic since.
MOST_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class UnlabelledRows:
    """N predictions of one model file without any label, oldest first, as columns.

    Attributes:
        logits: float32 (N, K).
        cluster: int64 (N,): keyed hash of the group, else of the input.
        propensity: float64 (N,): probability with which a label was sought, nan where unknown.
        label_sought: bool (N,): whether this row's label was sought, and has not come.
        segment: object (N,): str, or None where the request named none.
        predicted_at: int64 (N,), microseconds since the epoch, ascending.
        actions: object (N,): str, or None where no policy decided.
        since_us: Time from which on no unlabelled row is left out, in microseconds since the epoch; None when none is.
    """

    logits: NDArray[np.float32]
    cluster: NDArray[np.int64]
    propensity: NDArray[np.float64]
    label_sought: NDArray[np.bool_]
    segment: NDArray[np.object_]
    predicted_at: NDArray[np.int64]
    actions: NDArray[np.object_]
    since_us: int | None = None

    def __len__(self) -> int:
        return len(self.cluster)

    def since(self, us: int) -> UnlabelledRows:
        """Return the rows that were predicted from that time on, in microseconds since the epoch."""
        start = int(np.searchsorted(self.predicted_at, us))
        return UnlabelledRows(
            self.logits[start:],
            self.cluster[start:],
            self.propensity[start:],
            self.label_sought[start:],
            self.segment[start:],
            self.predicted_at[start:],
            self.actions[start:],
            since_us=us,
        )


def load_unlabelled_rows(
    connection: Connection, window: Window, *, classes: int, at_most: int | None = None, again: Rescoring | None = None
) -> UnlabelledRows:
    """Return the predictions of a window that no label is about, the most recent of them.

    Args:
        connection: Inside a read transaction.
        window: Which predictions.
        classes: Number K of the model's labels.
        at_most: How many; None is `MOST_ROWS`.
        again: In place of the window's own rows, those of earlier models that can be scored again.
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
    names = ("logits", "cluster", "propensity", "sought", "segment", "created_at", "action")
    columns = [predictions.c[name] for name in names]
    query = select(*columns).join_from(predictions, newest, newest.c.id == predictions.c.id)
    if again is not None:
        query = with_inputs(query)
    query = query.order_by(predictions.c.created_at, predictions.c.id)
    segments, actions = Codes(), Codes()
    scores = vectors(classes) if again is None else again.score
    converters = (scores, integers, numbers, booleans, segments, integers, actions)
    logits, cluster, propensity, sought, segment, created_at, action = read_columns(connection, [query], converters)
    words = segments.values_of(segment), actions.values_of(action)
    rows = UnlabelledRows(logits, cluster, propensity, sought, words[0], created_at, words[1])
    # Others of the oldest row's microsecond may be among those left out.
    return replace(rows, since_us=int(rows.predicted_at[0]) + 1) if len(rows) == at_most else rows


def _labels(connection: Connection, model: str) -> list[Exists]:
    """Return what asks for labels of a prediction: one given by id, and, where the model has any, one by reference.

    The first needs an index only, the second a row of each prediction.
    """
    by_id, by_reference = (
        select(feedback.c.target).where(feedback.c.model == model, feedback.c.by_reference == kind) for kind in (0, 1)
    )
    labels = [by_id.where(feedback.c.target == predictions.c.id).exists()]
    if connection.execute(by_reference.limit(1)).first() is not None:
        labels.append(by_reference.where(feedback.c.target == predictions.c.reference).exists())
    return labels


def count_labelled(connection: Connection, window: Window, *, at_most: int, input_spec: str | None = None) -> int:
    """Return how many predictions of a window have a label, counting no further than `at_most`.

    Args:
        connection: Inside a read transaction.
        window: Which predictions.
        at_most: Where to stop.
        input_spec: Count those of earlier models too that took the same inputs, whether or not they were kept.
    """
    origin: ColumnElement[int] = predictions.c.origin
    target: ColumnElement[str] = feedback.c.target
    if window.since_us is None:  # from the labels to their predictions: `|| ''` keeps SQLite from the other way
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
