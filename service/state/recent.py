"""The newest predictions of a model file, with their labels so far."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from sqlalchemy import Connection

from service.decisions.rows import NO_LABEL, Rows
from service.state.labelled import load_current_labels
from service.state.rows import RowReader
from service.state.tables import predictions
from service.state.window import Window

_LOGITS_BYTES: Final = 64 << 20
_FEWEST_ROWS: Final = 256


def rows_at_once(classes: int, at_most: int, logits_bytes: int = _LOGITS_BYTES) -> int:
    """Return how many rows a serving process reads at once: fewer for many classes.

    Args:
        classes: Number K of the model's labels.
        at_most: Maximum rows.
        logits_bytes: Maximum size of the rows' logits; at least 256 rows are read.

    Example:
        >>> rows_at_once(10, 50_000), rows_at_once(10_000, 50_000)
        (50000, 1677)
    """
    return min(max(logits_bytes // (4 * classes), _FEWEST_ROWS), at_most)


def load_recent_rows(
    connection: Connection, window: Window, *, label_names: tuple[str, ...], at_most: int | None = None
) -> Rows:
    """Return the newest predictions of a window, oldest first, with their labels so far.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        label_names: The model's K labels.
        at_most: Maximum rows; None for all.
    """
    reader = RowReader(len(label_names), ids=True)
    query = (
        reader.query()
        .where(predictions.c.origin.in_(window.origins(connection)), *window.times())
        .order_by(predictions.c.created_at.desc(), predictions.c.id.desc())
        .limit(at_most)
    )
    columns = reader.read(connection, [query])
    ids, predicted_at = columns["id"][::-1], columns["predicted_at"][::-1]  # oldest first
    label, labelled_at = np.full(len(ids), NO_LABEL), np.zeros(len(ids), dtype=np.int64)
    if len(ids):
        since = replace(window, since_us=int(predicted_at[0]))
        labelled = load_current_labels(connection, since, label_names=label_names)
        order = np.argsort(ids)
        places = np.searchsorted(ids, labelled.id, sorter=order)
        here = places < len(ids)  # a row of the oldest microsecond may be left out
        found = order[places[here]]
        same = ids[found] == labelled.id[here]
        label[found[same]] = labelled.label[here][same]
        labelled_at[found[same]] = labelled.labelled_at[here][same]
    return reader.rows(columns, slice(None, None, -1), label=label, labelled_at=labelled_at)
