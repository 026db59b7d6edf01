"""The newest predictions of a model file, with their labels as far as they have come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from service.state.labelled import ROWS_PER_FETCH, load_labelled_rows
from service.state.tables import predictions
from service.state.window import Window

NO_LABEL: Final = -1


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
    """

    ids: NDArray[np.str_]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    cluster: NDArray[np.int64]
    propensity: NDArray[np.float64]
    sought: NDArray[np.bool_]
    segment: NDArray[np.object_]
    predicted_at: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


def load_recent_rows(
    connection: Connection, window: Window, *, label_names: tuple[str, ...], at_most: int
) -> RecentRows:
    """Return the newest predictions of a window.

    Args:
        connection: Inside a read transaction.
        window: Which predictions.
        label_names: The model's K labels.
        at_most: Rows that are returned, at most.
    """
    names = ("id", "logits", "cluster", "propensity", "sought", "segment", "created_at")
    query = (
        select(*(predictions.c[name] for name in names))
        .where(predictions.c.origin.in_(window.origins(connection)), *window.times())
        .order_by(predictions.c.created_at.desc(), predictions.c.id.desc())
        .limit(at_most)
    )
    chunks = list(connection.execute(query.execution_options(yield_per=ROWS_PER_FETCH)).partitions())
    columns = list(zip(*(row for chunk in chunks for row in chunk), strict=True)) or [()] * len(names)
    ids, blobs, cluster, propensity, sought, segment, predicted_at = columns
    rows = RecentRows(  # oldest first
        ids=np.array(ids, dtype=np.str_)[::-1],
        logits=np.frombuffer(b"".join(blobs), dtype="<f4").reshape(-1, len(label_names))[::-1],
        labels=np.full(len(ids), NO_LABEL, dtype=np.int64),
        cluster=np.array(cluster, dtype=np.int64)[::-1],
        propensity=np.array(propensity, dtype=np.float64)[::-1],
        sought=np.array(sought, dtype=np.bool_)[::-1],
        segment=np.array(segment, dtype=np.object_)[::-1],
        predicted_at=np.array(predicted_at, dtype=np.int64)[::-1],
    )
    if not len(rows):
        return rows
    since = replace(window, since_us=int(rows.predicted_at[0]))
    labelled = load_labelled_rows(connection, since, label_names=label_names)
    order = np.argsort(rows.ids)
    places = np.searchsorted(rows.ids, labelled.ids, sorter=order)
    here = places < len(rows)  # a row of the oldest microsecond may have been left out
    found = order[places[here]]
    same = rows.ids[found] == labelled.ids[here]
    rows.labels[found[same]] = labelled.labels[here][same]
    return rows
