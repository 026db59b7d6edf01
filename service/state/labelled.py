"""Labelled rows: labels joined with their predictions, as numpy columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, distinct, exists, func, select, union_all

from service.decisions.rows import Rows
from service.state.columns import Codes, integers
from service.state.rescoring import Rescoring, with_inputs
from service.state.resolution import PRIORITY, weight
from service.state.rows import RowReader
from service.state.tables import feedback, predictions
from service.state.window import FOUND_OTHERWISE, Window, origins_of

_POSITIONS = 1 << 32  # more than a batch of feedback can have, so that batch and position make one sortable number


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """Predictions of one model digest with their current labels.

    Attributes:
        rows: N rows, oldest first; labels are indices into `label_names`.
        pending: Targets of the model's labels without a known prediction.
        conflicts: Predictions with different labels.
        unknown_labels: Predictions left out because their current label is not among `label_names`.
        since_us: Time from which no row is left out, in microseconds since the epoch; None if none is.
    """

    rows: Rows
    pending: int
    conflicts: int
    unknown_labels: int
    since_us: int | None = None


def load_labelled_rows(
    connection: Connection,
    window: Window,
    *,
    label_names: Sequence[str],
    priority: Sequence[str] = PRIORITY,
    at_most: int | None = None,
    again: Rescoring | None = None,
) -> LabelledRows:
    """Join a model's labels with their predictions and resolve each current label.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        label_names: The model's K labels, in the order of its logits.
        priority: Sources, strongest first; all other sources are weaker. Among equals the later label wins.
        at_most: Maximum labels; those of the oldest predictions are left out.
        again: Read rows of earlier models that can be scored again, instead of the window's own.

    Example:
        >>> from service.state.database import Database
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     database = Database.open(f"sqlite:///{folder}/state.db")
        ...     with database.connect() as connection:
        ...         found = load_labelled_rows(connection, Window("digits", "9f2c"), label_names=["cat", "dog"])
        ...     database.close()
        >>> found.rows.logits.shape, found.pending
        ((0, 2), 0)
    """
    since_us = None
    reading = _Reading(label_names, priority, again)
    labels = reading.read(connection, window, at_most)
    if at_most is not None and len(labels["label"]) > at_most:
        since_us = reading.time_of(connection, window, at_most) + 1
        labels = reading.read(connection, replace(window, since_us=since_us), None)
    found = reading.resolved(labels, pending=_pending(connection, window.model, len(labels["label"])))
    return replace(found, since_us=since_us)


def load_current_labels(connection: Connection, window: Window, *, label_names: Sequence[str]) -> Rows:
    """Return the labelled predictions of a window, each with its current label.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        label_names: The model's K labels; predictions with another current label are left out.
    """
    reading = _Reading(label_names, PRIORITY, None)
    return reading.resolved(reading.read(connection, window, None), pending=0).rows


class _Reading:
    """Reads every label of a window with its prediction, and reduces them to one label per prediction."""

    def __init__(self, label_names: Sequence[str], priority: Sequence[str], again: Rescoring | None) -> None:
        self._classes = len(label_names)
        self._priority = priority
        self._again = again
        self._sources = Codes()
        self._reader = RowReader(
            self._classes,
            again=again,
            ids=True,
            others={
                "label": (feedback.c.label, Codes(label_names)),
                "source": (feedback.c.source, self._sources),
                "said_at": (func.coalesce(feedback.c.labelled_at, feedback.c.received_at), integers),
                "received_at": (feedback.c.received_at, integers),
                "place": (feedback.c.batch * _POSITIONS + feedback.c.position, integers),
            },
        )

    def read(self, connection: Connection, window: Window, at_most: int | None) -> dict[str, NDArray[Any]]:
        """Return the labels of the window's predictions, up to one more than `at_most`."""
        queries = self._queries(connection, window)
        if connection.dialect.name == "sqlite" and window.since_us is None:
            # Else SQLite scans the labels in order of time, with separate look-ups of each and its prediction.
            queries = [query.order_by(feedback.c.target) for query in queries]
        if at_most is not None:
            queries = [query.limit(at_most + 1) for query in queries]
        return self._reader.read(connection, queries)

    def time_of(self, connection: Connection, window: Window, place: int) -> int:
        """Return the time of the labelled prediction at `place`, counted from the newest."""
        created_at = predictions.c.created_at
        times = union_all(
            *(query.with_only_columns(created_at) for query in self._queries(connection, window))
        ).subquery()
        newest_first = select(times.c.created_at).order_by(times.c.created_at.desc()).limit(1).offset(place)
        return int(connection.execute(newest_first).scalar_one())

    def _queries(self, connection: Connection, window: Window) -> list[Select[Any]]:
        """Return the queries for labels by prediction id and by reference."""
        origin = FOUND_OTHERWISE if window.since_us is None else predictions.c.origin
        again = self._again
        made_here = window.origins(connection) if again is None else again.origins(connection, window)
        queries = [
            self._reader.query()
            .join_from(feedback, predictions, name == feedback.c.target)
            .where(feedback.c.model == window.model, feedback.c.by_reference == by_reference)
            .where(origin.in_(made_here), *window.times())
            for by_reference, name in enumerate((predictions.c.id, predictions.c.reference))
        ]
        return queries if again is None else [with_inputs(query) for query in queries]

    def resolved(self, labels: dict[str, NDArray[Any]], *, pending: int) -> LabelledRows:
        """Reduce labels to one per prediction; `pending` is passed through."""
        ids, label = labels["id"], labels["label"]
        by_id = np.argsort(ids, kind="stable")
        new = np.ones(len(ids), dtype=np.bool_)
        new[1:] = ids[by_id[1:]] != ids[by_id[:-1]]
        prediction = np.empty(len(ids), dtype=np.int64)
        prediction[by_id] = np.cumsum(new)  # numbered in order of ids

        strengths = np.array([weight(name, self._priority) for name in self._sources], dtype=np.int64)
        order = np.lexsort((labels["place"], labels["said_at"], strengths[labels["source"]], prediction))
        first = np.flatnonzero(new)
        current = order[np.append(first[1:], len(ids)) - 1] if len(ids) else order
        disagree = _per_group(np.minimum, label[order], first) != _per_group(np.maximum, label[order], first)
        labelled_at = _per_group(np.minimum, labels["received_at"][order], first)

        known = label[current] < self._classes
        keep = np.argsort(labels["predicted_at"][current], kind="stable")
        keep = keep[known[keep]]
        which = current[keep]
        return LabelledRows(
            self._reader.rows(labels, which, label=label[which].astype(np.int64), labelled_at=labelled_at[keep]),
            pending=pending,
            conflicts=int(disagree.sum()),
            unknown_labels=int((~known).sum()),
        )


def _pending(connection: Connection, model: str, found: int) -> int:
    """Count the targets of a model's labels without a known prediction; `found` labels have one."""
    about = select(func.count(), func.sum(feedback.c.by_reference)).where(feedback.c.model == model)
    labels, by_reference = connection.execute(about).one()
    if labels == found and not by_reference:  # every label by id has found its prediction
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


def _per_group(reduce: np.ufunc, values: NDArray[Any], first: NDArray[np.intp]) -> NDArray[Any]:
    """Reduce each run of values that starts at one of `first`."""
    reduced: NDArray[Any] = reduce.reduceat(values, first) if len(first) else values
    return reduced
