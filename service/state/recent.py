"""The newest predictions of a model file, with their labels as far as they have come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from service.state.columns import Codes, ascii_texts, booleans, integers, numbers, read_columns, vectors
from service.state.labelled import load_current_labels
from service.state.tables import predictions
from service.state.window import Window

NO_LABEL: Final = -1
_LOGITS_BYTES: Final = 64 << 20
_FEWEST_ROWS: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class RecentRows:
    """N predictions of one model file, oldest first, as columns.

    Attributes:
        ids: str (N,): prediction ids.
        logits: float32 (N, K).
        labels: int64 (N,), −1 where none has come.
        cluster: int64 (N,): keyed hash of the group, else of the input.
        propensity: float64 (N,): probability with which a label was sought, NaN where unknown.
        sought: bool (N,): whether the row's label was sought.
        segment: object (N,): str, or None where the request named none.
        predicted_at: int64 (N,), microseconds since the epoch, ascending.
        labelled_at: int64 (N,), when the row's first label was received; 0 where none has come.
    """

    ids: NDArray[np.str_]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    cluster: NDArray[np.int64]
    propensity: NDArray[np.float64]
    sought: NDArray[np.bool_]
    segment: NDArray[np.object_]
    predicted_at: NDArray[np.int64]
    labelled_at: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


def rows_at_once(classes: int, at_most: int, logits_bytes: int = _LOGITS_BYTES) -> int:
    """Return how many rows a serving process reads at once: fewer where their logits are many.

    Args:
        classes: Number K of the model's labels.
        at_most: Where they are few.
        logits_bytes: That the rows' logits may have together; 256 rows are read all the same.

    Example:
        >>> rows_at_once(10, 50_000), rows_at_once(10_000, 50_000)
        (50000, 1677)
    """
    return min(max(logits_bytes // (4 * classes), _FEWEST_ROWS), at_most)


def load_recent_rows(
    connection: Connection, window: Window, *, label_names: tuple[str, ...], at_most: int | None = None
) -> RecentRows:
    """Return the newest predictions of a window.

    Args:
        connection: Inside a read transaction.
        window: Which predictions.
        label_names: The model's K labels.
        at_most: Rows that are returned, at most; None for all.
    """
    names = ("id", "logits", "cluster", "propensity", "sought", "segment", "created_at")
    query = (
        select(*(predictions.c[name] for name in names))
        .where(predictions.c.origin.in_(window.origins(connection)), *window.times())
        .order_by(predictions.c.created_at.desc(), predictions.c.id.desc())
        .limit(at_most)
    )
    segments = Codes()
    converters = (ascii_texts, vectors(len(label_names)), integers, numbers, booleans, segments, integers)
    ids, logits, cluster, propensity, sought, segment, predicted_at = read_columns(connection, [query], converters)
    rows = RecentRows(  # oldest first
        ids=ids[::-1].astype(np.str_),
        logits=logits[::-1],
        labels=np.full(len(ids), NO_LABEL, dtype=np.int64),
        cluster=cluster[::-1],
        propensity=propensity[::-1],
        sought=sought[::-1],
        segment=segments.values_of(segment[::-1]),
        predicted_at=predicted_at[::-1],
        labelled_at=np.zeros(len(ids), dtype=np.int64),
    )
    if not len(rows):
        return rows
    since = replace(window, since_us=int(rows.predicted_at[0]))
    labelled = load_current_labels(connection, since, label_names=label_names)
    order = np.argsort(rows.ids)
    places = np.searchsorted(rows.ids, labelled.ids, sorter=order)
    here = places < len(rows)  # a row of the oldest microsecond may have been left out
    found = order[places[here]]
    same = rows.ids[found] == labelled.ids[here]
    rows.labels[found[same]] = labelled.labels[here][same]
    rows.labelled_at[found[same]] = labelled.first_labelled_at[here][same]
    return rows
