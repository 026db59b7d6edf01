"""Labelled rows for a refit: labels joined with their predictions, as numpy columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, distinct, exists, func, select, union_all

from service.state.columns import Codes, ascii_texts, booleans, integers, numbers, read_columns, vectors
from service.state.rescoring import Rescoring, with_inputs
from service.state.resolution import PRIORITY, weight
from service.state.tables import feedback, predictions
from service.state.window import FOUND_OTHERWISE, Window, origins_of

_POSITIONS = 1 << 32  # more than a batch of feedback can have: batch and position make one number that sorts


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """N predictions of one model digest with their current labels, oldest first, as columns.

    Attributes:
        ascii_ids: bytes (N,): prediction ids; `ids` makes str of them, four times as long.
        logits: float32 (N, K).
        labels: int64 (N,): places in the `label_names` that were asked for, 0 … K − 1.
        cluster: int64 (N,): keyed hash of the group, else of the input.
        propensity: float64 (N,): probability with which a label was sought, nan where unknown.
        label_sought: bool (N,): whether this row's label was sought; False for a label that came unasked.
        predicted_at: int64 (N,), microseconds since the epoch, ascending.
        first_labelled_at: int64 (N,): when the row's first label was received.
        actions: object (N,): str, or None where no policy decided.
        segment: object (N,): str, or None where the request named none.
        pending: Targets of the model's labels for which no prediction is known.
        conflicts: Predictions whose labels disagree.
        unknown_labels: Predictions left out because their current label is not among `label_names`.
        since_us: Time from which on no row is left out, in microseconds since the epoch; None when none is.
    """

    ascii_ids: NDArray[np.bytes_]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    cluster: NDArray[np.int64]
    propensity: NDArray[np.float64]
    label_sought: NDArray[np.bool_]
    predicted_at: NDArray[np.int64]
    first_labelled_at: NDArray[np.int64]
    actions: NDArray[np.object_]
    segment: NDArray[np.object_]
    pending: int
    conflicts: int
    unknown_labels: int
    since_us: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def ids(self) -> NDArray[np.str_]:
        """Prediction ids, str (N,)."""
        return self.ascii_ids.astype(np.str_)


@dataclass(frozen=True, slots=True)
class CurrentLabels:
    """Labels of N predictions, as columns.

    Attributes:
        ids: str (N,): prediction ids.
        labels: int64 (N,): places in the `label_names` that were asked for.
        first_labelled_at: int64 (N,): when the row's first label was received.
    """

    ids: NDArray[np.str_]
    labels: NDArray[np.int64]
    first_labelled_at: NDArray[np.int64]


def load_labelled_rows(
    connection: Connection,
    window: Window,
    *,
    label_names: Sequence[str],
    priority: Sequence[str] = PRIORITY,
    at_most: int | None = None,
    again: Rescoring | None = None,
) -> LabelledRows:
    """Join a model's labels with the predictions that they are about and resolve the current label of each.

    Args:
        connection: Inside a read transaction.
        window: Which predictions.
        label_names: The model's K labels, in the order of its logits.
        priority: Sources, strongest first; every other source is weaker. Among equals the later label wins.
        at_most: Labels that are read; where there are more, those of the oldest predictions are left out.
        again: In place of the window's own rows, those of earlier models that can be scored again.

    Example:
        >>> from service.state.database import Database
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     database = Database.open(f"sqlite:///{folder}/state.db")
        ...     with database.connect() as connection:
        ...         rows = load_labelled_rows(connection, Window("digits", "9f2c"), label_names=["cat", "dog"])
        ...     database.close()
        >>> rows.logits.shape, rows.pending
        ((0, 2), 0)
    """
    since_us = None
    codes = _Codes(label_names, priority)
    columns = _read(connection, window, codes, at_most, again)
    if at_most is not None and len(columns[0]) > at_most:
        since_us = _time_of(connection, window, at_most, again) + 1
        columns = _read(connection, replace(window, since_us=since_us), codes, None, again)
    rows = _resolved(columns, codes, pending=_pending(connection, window.model, len(columns[0])))
    return replace(rows, since_us=since_us)


def load_current_labels(connection: Connection, window: Window, *, label_names: Sequence[str]) -> CurrentLabels:
    """Return the current label of each labelled prediction of a window, and nothing of what is not in the window.

    Args:
        connection: Inside a read transaction.
        window: Which predictions.
        label_names: The model's K labels; a prediction whose current label is not among them is left out.
    """
    codes = _Codes(label_names, PRIORITY)
    rows = _resolved(_read(connection, window, codes, None, None), codes, pending=0)
    return CurrentLabels(rows.ids, rows.labels, rows.first_labelled_at)


class _Codes:
    """What turns the texts of the rows into numbers, and back."""

    def __init__(self, label_names: Sequence[str], priority: Sequence[str]) -> None:
        self.classes = len(label_names)
        self.labels = Codes(label_names)
        self.actions = Codes()
        self.segments = Codes()
        self.sources = Codes()
        self.priority = priority

    def strengths(self, sources: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return how strong each row's source is."""
        known = np.array([weight(name, self.priority) for name in self.sources], dtype=np.int64)
        strengths: NDArray[np.int64] = known[sources]
        return strengths


_COLUMNS = (
    predictions.c.id,
    predictions.c.logits,
    predictions.c.propensity,
    predictions.c.action,
    predictions.c.segment,
    predictions.c.cluster,
    predictions.c.created_at,
    predictions.c.sought,
    feedback.c.label,
    feedback.c.source,
    func.coalesce(feedback.c.labelled_at, feedback.c.received_at),
    feedback.c.received_at,
    feedback.c.batch * _POSITIONS + feedback.c.position,
)


def _read(
    connection: Connection, window: Window, codes: _Codes, at_most: int | None, again: Rescoring | None
) -> list[NDArray[Any]]:
    """Return `_COLUMNS` of each label about a prediction of the window, or of one label more than `at_most`."""
    queries = _queries(connection, window, again)
    if connection.dialect.name == "sqlite" and window.since_us is None:
        # Else SQLite walks through the labels by their times, and looks up each of them and its prediction elsewhere.
        queries = [query.order_by(feedback.c.target) for query in queries]
    if at_most is not None:
        queries = [query.limit(at_most + 1) for query in queries]
    scores = vectors(codes.classes) if again is None else again.score
    converters = (
        *(ascii_texts, scores, numbers, codes.actions, codes.segments, integers, integers, booleans),
        *(codes.labels, codes.sources, integers, integers, integers),
    )
    return read_columns(connection, queries, converters)


def _queries(connection: Connection, window: Window, again: Rescoring | None) -> list[Select[Any]]:
    """Return the queries for labels that name their prediction by its id, and for those that do by its reference."""
    origin = FOUND_OTHERWISE if window.since_us is None else predictions.c.origin
    made_here = window.origins(connection) if again is None else again.origins(connection, window)
    queries = [
        select(*_COLUMNS)
        .join_from(feedback, predictions, name == feedback.c.target)
        .where(feedback.c.model == window.model, feedback.c.by_reference == by_reference)
        .where(origin.in_(made_here), *window.times())
        for by_reference, name in enumerate((predictions.c.id, predictions.c.reference))
    ]
    return queries if again is None else [with_inputs(query) for query in queries]


def _time_of(connection: Connection, window: Window, place: int, again: Rescoring | None) -> int:
    """Return when the labelled prediction was made that has so many labels on newer ones before it."""
    created_at = predictions.c.created_at
    times = union_all(
        *(query.with_only_columns(created_at) for query in _queries(connection, window, again))
    ).subquery()
    newest_first = select(times.c.created_at).order_by(times.c.created_at.desc()).limit(1).offset(place)
    return int(connection.execute(newest_first).scalar_one())


def _pending(connection: Connection, model: str, found: int) -> int:
    """Count the targets of a model's labels that name none of its predictions; of so many labels one is known."""
    about = select(func.count(), func.sum(feedback.c.by_reference)).where(feedback.c.model == model)
    labels, by_reference = connection.execute(about).one()
    if labels == found and not by_reference:  # a label by id is of one prediction at most: each has found its own
        return 0
    here = origins_of(connection, model)
    count = 0
    for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
        known = exists().where(name == feedback.c.target, FOUND_OTHERWISE.in_(here))
        query = select(func.count(distinct(feedback.c.target))).where(
            feedback.c.model == model, feedback.c.by_reference == by_reference, ~known
        )
        count += connection.execute(query).scalar_one()
    return count


def _resolved(columns: list[NDArray[Any]], codes: _Codes, *, pending: int) -> LabelledRows:
    """Reduce rows, one for each label, to one for each prediction; `pending` is handed on."""
    ids, logits, propensity, action, segment, cluster, created_at, sought, label, source, *times, place = columns
    said_at, received_at = times
    by_id = np.argsort(ids, kind="stable")
    new = np.ones(len(ids), dtype=np.bool_)
    new[1:] = ids[by_id[1:]] != ids[by_id[:-1]]
    prediction = np.empty(len(ids), dtype=np.int64)
    prediction[by_id] = np.cumsum(new)  # numbered in the order of their ids

    order = np.lexsort((place, said_at, codes.strengths(source), prediction))
    first = np.flatnonzero(new)
    current = order[np.append(first[1:], len(ids)) - 1] if len(ids) else order
    disagree = _per_group(np.minimum, label[order], first) != _per_group(np.maximum, label[order], first)
    first_labelled_at = _per_group(np.minimum, received_at[order], first)

    known = label[current] < codes.classes
    keep = np.argsort(created_at[current], kind="stable")
    keep = keep[known[keep]]
    rows = current[keep]
    return LabelledRows(
        ascii_ids=ids[rows],
        logits=logits[rows],
        labels=label[rows].astype(np.int64),
        cluster=cluster[rows],
        propensity=propensity[rows],
        label_sought=sought[rows],
        predicted_at=created_at[rows],
        first_labelled_at=first_labelled_at[keep],
        actions=codes.actions.values_of(action[rows]),
        segment=codes.segments.values_of(segment[rows]),
        pending=pending,
        conflicts=int(disagree.sum()),
        unknown_labels=int((~known).sum()),
    )


def _per_group(reduce: np.ufunc, values: NDArray[Any], first: NDArray[np.intp]) -> NDArray[Any]:
    """Reduce each run of values that starts at one of `first`."""
    reduced: NDArray[Any] = reduce.reduceat(values, first) if len(first) else values
    return reduced
