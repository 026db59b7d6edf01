"""Labelled rows for a refit: labels joined with their predictions, as numpy columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, distinct, exists, func, select

from service.state.resolution import PRIORITY, weight
from service.state.tables import feedback, origins, predictions
from service.state.window import Window

ROWS_PER_FETCH = 1_000  # small chunks stay in the processor's cache, and out of the collector's oldest generation


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """N predictions of one model digest with their current labels, oldest first, as columns.

    Attributes:
        ids: str (N,): prediction ids.
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
        sought: Predictions in the window for which a label was sought.
        sought_unlabelled: Those of them that have none yet.
    """

    ids: NDArray[np.str_]
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
    sought: int
    sought_unlabelled: int

    def __len__(self) -> int:
        return len(self.labels)


def load_labelled_rows(
    connection: Connection, window: Window, *, label_names: Sequence[str], priority: Sequence[str] = PRIORITY
) -> LabelledRows:
    """Join a model's labels with the predictions that they are about and resolve the current label of each.

    Args:
        connection: Inside a read transaction.
        window: Which predictions.
        label_names: The model's K labels, in the order of its logits.
        priority: Sources, strongest first; every other source is weaker. Among equals the later label wins.

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
    made_here, times = window.origins(connection), window.times()
    labels = _Labels(label_names, priority)
    # Without a start in time, "+ 0" keeps SQLite from walking through every prediction in search of its labels.
    origin = predictions.c.origin + 0 if window.since_us is None else predictions.c.origin
    for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
        query = select(*_COLUMNS).join(predictions, name == feedback.c.target)
        query = query.where(feedback.c.model == window.model, feedback.c.by_reference == by_reference)
        query = query.where(origin.in_(made_here), *times)
        for chunk in connection.execute(query.execution_options(yield_per=ROWS_PER_FETCH)).partitions():
            labels.take(list(zip(*chunk, strict=True)))
    sought = select(func.count()).where(predictions.c.origin.in_(made_here), predictions.c.sought, *times)
    return labels.resolve(pending=_pending(connection, window.model), sought=connection.execute(sought).scalar_one())


_COLUMNS = (
    predictions.c.id,
    predictions.c.logits,
    predictions.c.propensity,
    predictions.c.action,
    predictions.c.segment,
    feedback.c.label,
    feedback.c.source,
    predictions.c.cluster,
    predictions.c.created_at,
    predictions.c.sought,
    func.coalesce(feedback.c.labelled_at, feedback.c.received_at),
    feedback.c.received_at,
    feedback.c.batch,
    feedback.c.position,
)


def _pending(connection: Connection, model: str) -> int:
    count = 0
    for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
        known = exists().where(
            name == feedback.c.target, origins.c.id == predictions.c.origin, origins.c.model == model
        )
        query = select(func.count(distinct(feedback.c.target))).where(
            feedback.c.model == model, feedback.c.by_reference == by_reference, ~known
        )
        count += connection.execute(query).scalar_one()
    return count


class _Labels:
    """Collects joined rows, one for each label, and reduces them to one for each prediction."""

    def __init__(self, label_names: Sequence[str], priority: Sequence[str]) -> None:
        self._classes = len(label_names)
        self._priority = priority
        self._prediction_codes = _Codes()
        self._action_codes = _Codes()
        self._segment_codes = _Codes()
        self._label_codes = _Codes()
        self._label_codes.of(label_names)
        self._logits = [np.empty((0, self._classes), dtype=np.float32)]
        self._propensity = [np.empty(0, dtype=np.float64)]
        self._numbers = [np.empty((12, 0), dtype=np.int64)]

    def take(self, columns: list[tuple[Any, ...]]) -> None:
        """Convert one chunk of rows, given as columns in the order of `_COLUMNS`."""
        ids, logits, propensity, action, segment, label, source, *integers = columns
        strength = {name: weight(name, self._priority) for name in set(source)}
        numbers = (
            self._prediction_codes.of(ids),
            self._action_codes.of(action),
            self._segment_codes.of(segment),
            self._label_codes.of(label),
            np.fromiter(map(strength.__getitem__, source), np.int64, len(source)),
            *(np.array(column, dtype=np.int64) for column in integers),
        )
        self._logits.append(np.frombuffer(b"".join(logits), dtype="<f4").reshape(-1, self._classes))
        self._propensity.append(np.array(propensity, dtype=np.float64))
        self._numbers.append(np.stack(numbers))

    def resolve(self, *, pending: int, sought: int) -> LabelledRows:
        """Return the rows; `pending` and `sought` are handed on."""
        logits, propensity = np.concatenate(self._logits), np.concatenate(self._propensity)
        numbers = np.concatenate(self._numbers, axis=1)
        prediction, action, segment, label, strength, cluster, created_at, was_sought, *place = numbers
        said_at, received_at, batch, position = place

        order = np.lexsort((position, batch, said_at, strength, prediction))
        first = np.flatnonzero(np.diff(prediction[order], prepend=-1))
        current = order[np.flatnonzero(np.diff(prediction[order], append=-1))]
        disagree = _per_group(np.minimum, label[order], first) != _per_group(np.maximum, label[order], first)
        first_labelled_at = _per_group(np.minimum, received_at[order], first)

        ids = np.array(list(self._prediction_codes), dtype=np.str_)
        actions, segments = (
            np.array(list(codes), dtype=np.object_) for codes in (self._action_codes, self._segment_codes)
        )
        known = label[current] < self._classes
        keep = np.lexsort((ids, created_at[current]))
        keep = keep[known[keep]]
        rows = current[keep]
        return LabelledRows(
            ids=ids[keep],
            logits=logits[rows],
            labels=label[rows],
            cluster=cluster[rows],
            propensity=propensity[rows],
            label_sought=was_sought[rows].astype(np.bool_),
            predicted_at=created_at[rows],
            first_labelled_at=first_labelled_at[keep],
            actions=actions[action[rows]],
            segment=segments[segment[rows]],
            pending=pending,
            conflicts=int(disagree.sum()),
            unknown_labels=int((~known).sum()),
            sought=sought,
            sought_unlabelled=sought - int(was_sought[current].sum()),
        )


class _Codes(defaultdict[Any, int]):
    """Numbers values in the order in which they are first met."""

    def __init__(self) -> None:
        super().__init__(count().__next__)

    def of(self, values: Sequence[Any]) -> NDArray[np.int64]:
        return np.fromiter(map(self.__getitem__, values), np.int64, len(values))


def _per_group(reduce: np.ufunc, values: NDArray[np.int64], first: NDArray[np.intp]) -> NDArray[np.int64]:
    """Reduce each run of values that starts at one of `first`."""
    reduced: NDArray[np.int64] = reduce.reduceat(values, first) if len(first) else values
    return reduced
