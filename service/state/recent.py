"""The newest predictions of a model file, with their labels so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, select, union_all

from bundle.split import LAST_FIT_GROUP
from service.decisions.rows import NO_LABEL, Rows
from service.state.columns import integers, objects
from service.state.labelled import load_current_labels
from service.state.rows import RowReader
from service.state.tables import inputs, predictions
from service.state.window import Window

_LOGITS_BYTES: Final = 64 << 20
_FEWEST_ROWS: Final = 256
_MOST_ORIGINS: Final = 400  # SQLite takes 500 parts in a query


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

    Where the window reads columns and a part of the rows suffices, those up to the newest one without a stored input
    are left out.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        label_names: The model's K labels.
        at_most: Maximum rows; None for all.
    """
    reader = RowReader(len(label_names), ids=True, arising=window.arising, cells=window.cells)
    return _load(connection, window, reader, label_names, at_most, ())[0]


def load_recent_fit_rows(
    connection: Connection, window: Window, *, label_names: tuple[str, ...], at_most: int
) -> tuple[Rows, NDArray[np.int64]]:
    """Return the newest predictions of a window whose role is fit, oldest first, and their origins.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        label_names: The model's K labels.
        at_most: Maximum rows.
    """
    others = {"origin": (predictions.c.origin, integers)}
    reader = RowReader(len(label_names), ids=True, others=others, arising=window.arising, cells=window.cells)
    fits = (predictions.c.cluster >= 0, predictions.c.cluster <= LAST_FIT_GROUP)
    rows, columns = _load(connection, window, reader, label_names, at_most, fits)
    return rows, columns["origin"][::-1]


def _load(
    connection: Connection,
    window: Window,
    reader: RowReader,
    label_names: tuple[str, ...],
    at_most: int | None,
    also: Sequence[ColumnElement[bool]],
) -> tuple[Rows, dict[str, NDArray[Any]]]:
    made_here = window.origins(connection)
    if at_most is not None:
        window = _newest(connection, window, made_here, at_most, also)
    query = (
        reader.query()
        .where(predictions.c.origin.in_(made_here), *window.times(), *also)
        .order_by(predictions.c.created_at.desc(), predictions.c.id.desc())
        .limit(at_most)
    )
    columns = reader.read(connection, [query])
    if window.cells is not None and at_most is not None:  # a caller who wants all rows must not take a part for all
        columns = _back_to(columns, columns["stored"]["stored"])
    ids, predicted_at = columns["id"][::-1], columns["predicted_at"][::-1]  # oldest first
    label, labelled_at = np.full(len(ids), NO_LABEL), np.zeros(len(ids), dtype=np.int64)
    if len(ids):
        since = replace(window, since_us=int(predicted_at[0]))
        label, labelled_at = matched(ids, load_current_labels(connection, since, label_names=label_names))
    return reader.rows(columns, slice(None, None, -1), label=label, labelled_at=labelled_at), columns


def matched(ids: NDArray[Any], labelled: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return label and time of the first label of predictions; `NO_LABEL` and 0 without one.

    Args:
        ids: Prediction ids, (N,).
        labelled: Labelled predictions, some of these among them.
    """
    label, labelled_at = np.full(len(ids), NO_LABEL), np.zeros(len(ids), dtype=np.int64)
    order = np.argsort(ids)
    places = np.searchsorted(ids, labelled.id, sorter=order)
    here = places < len(ids)  # a row of the oldest microsecond may be left out
    found = order[places[here]]
    same = ids[found] == labelled.id[here]
    label[found[same]] = labelled.label[here][same]
    labelled_at[found[same]] = labelled.labelled_at[here][same]
    return label, labelled_at


def load_recent_inputs(
    connection: Connection, window: Window, *, classes: int, at_most: int
) -> tuple[Rows, NDArray[np.object_]]:
    """Return the newest predictions of a window back to the first without a stored input, oldest first.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        classes: Number K of the model's labels.
        at_most: Maximum rows.

    Returns:
        N rows without labels, and their stored inputs, shape (N,).
    """
    made_here = window.origins(connection)
    window = _newest(connection, window, made_here, at_most)
    reader = RowReader(classes, others={"content": (inputs.c.content, objects)})
    query = (
        reader.query()
        .outerjoin_from(predictions, inputs, inputs.c.id == predictions.c.id)
        .where(predictions.c.origin.in_(made_here), *window.times())
        .order_by(predictions.c.created_at.desc(), predictions.c.id.desc())
        .limit(at_most)
    )
    columns = reader.read(connection, [query])
    columns = _back_to(columns, np.array([content is not None for content in columns["content"]], np.bool_))
    rows, contents = reader.rows(columns), columns["content"]
    if window.cells is not None:
        rows = replace(rows, cells=window.cells.complete(window.cells.read(contents.tolist())))
    return rows.take(slice(None, None, -1)), contents[::-1]


def _back_to(columns: dict[str, NDArray[Any]], stored: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Return the newest rows, which come first, back to the first without a stored input."""
    absent = np.flatnonzero(~stored)
    kept = slice(0, int(absent[0]) if len(absent) else None)
    return {key: column[kept] for key, column in columns.items()}


def _newest(
    connection: Connection,
    window: Window,
    made_here: list[int],
    at_most: int,
    also: Sequence[ColumnElement[bool]] = (),
) -> Window:
    """Return the part of a window with its `at_most` newest rows, found in the index of each origin.

    PostgreSQL would else sort all rows of several origins.
    """
    if not 1 < len(made_here) <= _MOST_ORIGINS:
        return window
    time = predictions.c.created_at
    of_each = [
        select(time).where(predictions.c.origin == origin, *window.times(), *also).order_by(time.desc()).limit(at_most)
        for origin in made_here
    ]
    times = union_all(*(select(newest.subquery()) for newest in of_each)).subquery()
    last = select(times.c.created_at).order_by(times.c.created_at.desc()).offset(at_most - 1).limit(1)
    since_us = connection.execute(last).scalar_one_or_none()
    return window if since_us is None else replace(window, since_us=since_us)
