"""Logged predictions that nobody has labelled: what a claim about all traffic must not forget."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, exists, select

from service.state.labelled import ROWS_PER_FETCH
from service.state.tables import feedback, predictions
from service.state.window import Window

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
        since_us: Time from which on no unlabelled row is left out, in microseconds since the epoch; None when none is.
    """

    logits: NDArray[np.float32]
    cluster: NDArray[np.int64]
    propensity: NDArray[np.float64]
    label_sought: NDArray[np.bool_]
    segment: NDArray[np.object_]
    predicted_at: NDArray[np.int64]
    since_us: int | None = None

    def __len__(self) -> int:
        return len(self.cluster)


def load_unlabelled_rows(connection: Connection, window: Window, *, classes: int) -> UnlabelledRows:
    """Return the predictions of a window that no label is about, the most recent `MOST_ROWS` of them.

    Args:
        connection: Inside a read transaction.
        window: Which predictions.
        classes: Number K of the model's labels.
    """
    labels = (
        exists().where(
            feedback.c.model == window.model, feedback.c.by_reference == by_reference, feedback.c.target == name
        )
        for by_reference, name in enumerate((predictions.c.id, predictions.c.reference))
    )
    names = ("logits", "cluster", "propensity", "sought", "segment", "created_at")
    query = (
        select(*(predictions.c[name] for name in names))
        .where(predictions.c.origin.in_(window.origins(connection)), *window.times())
        .where(*(~label for label in labels))
        .order_by(predictions.c.created_at.desc(), predictions.c.id.desc())
        .limit(MOST_ROWS)
    )
    logits = [np.empty((0, classes), dtype=np.float32)]
    clusters = [np.empty(0, dtype=np.int64)]
    propensities = [np.empty(0, dtype=np.float64)]
    soughts = [np.empty(0, dtype=np.bool_)]
    segments = [np.empty(0, dtype=np.object_)]
    times = [np.empty(0, dtype=np.int64)]
    known: dict[str | None, str | None] = {}  # one text for each segment, however many rows name it
    for chunk in connection.execute(query.execution_options(yield_per=ROWS_PER_FETCH)).partitions():
        blobs, cluster, propensity, sought, segment, created_at = zip(*chunk, strict=True)
        logits.append(np.frombuffer(b"".join(blobs), dtype="<f4").reshape(-1, classes))
        clusters.append(np.array(cluster, dtype=np.int64))
        propensities.append(np.array(propensity, dtype=np.float64))
        soughts.append(np.array(sought, dtype=np.bool_))
        segments.append(np.array([known.setdefault(name, name) for name in segment], dtype=np.object_))
        times.append(np.array(created_at, dtype=np.int64))
    rows = UnlabelledRows(  # oldest first
        np.concatenate(logits)[::-1],
        np.concatenate(clusters)[::-1],
        np.concatenate(propensities)[::-1],
        np.concatenate(soughts)[::-1],
        np.concatenate(segments)[::-1],
        np.concatenate(times)[::-1],
    )
    # Others of the oldest row's microsecond may be among those left out.
    return replace(rows, since_us=int(rows.predicted_at[0]) + 1) if len(rows) == MOST_ROWS else rows


def count_labelled(connection: Connection, window: Window, *, at_most: int) -> int:
    """Return how many predictions of a window have a label, counting no further than `at_most`."""
    made_here, found = window.origins(connection), set[str]()
    for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
        query = (
            select(predictions.c.id)
            .join(feedback, name == feedback.c.target)
            .where(feedback.c.model == window.model, feedback.c.by_reference == by_reference)
            .where(predictions.c.origin.in_(made_here), *window.times())
            .distinct()
            .limit(at_most)
        )
        found.update(connection.scalars(query))
    return min(len(found), at_most)
