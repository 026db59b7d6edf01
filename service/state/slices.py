"""Samples of the log along time: a bounded number of rows of each time span, however many it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, exists, literal_column, select

from service.decisions.rows import Rows, came
from service.state.columns import integers, numbers
from service.state.labelled import load_labels_of
from service.state.recent import matched
from service.state.rows import Further, RowReader
from service.state.tables import inputs, origins, predictions
from service.state.window import Window

Span = tuple[int, int]
"""Start, included, and end, excluded, in microseconds since the epoch."""

_SLICES: Final = 4
_MOST_ORIGINS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class LogSample:
    """N predictions.

    Attributes:
        rows: The predictions, span by span.
        revision: Revision that answered each, of shape (N,).
        span: Number of its span, int64 (N,).
        predicted: Index of the label that it predicted, int64 (N,).
        confidence: Its probability, float64 (N,).
        cut: Whether some rows of a span are left out.
    """

    rows: Rows
    revision: NDArray[np.str_]
    span: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    cut: bool


def load_sample(
    connection: Connection, window: Window, spans: Sequence[Span], *, classes: int, at_most: int
) -> LogSample:
    """Return predictions of each span: all of them, or those that follow four instants in it.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions that holds the spans.
        spans: Time spans, oldest first.
        classes: Number K of the model's labels.
        at_most: Maximum rows. Spans share them evenly, and large ones get what small ones leave; at least four for each
            of a span's origins are read.
    """
    return _load(connection, window, spans, classes=classes, at_most=at_most)


def load_sought_sample(
    connection: Connection, window: Window, spans: Sequence[Span], *, label_names: tuple[str, ...], at_most: int
) -> LogSample:
    """Return predictions whose label was sought, with their labels so far; see `load_sample`."""
    condition = "sought = 1" if connection.dialect.name == "sqlite" else "sought"  # as the index has it
    sought: ColumnElement[bool] = literal_column(condition)
    conditions = [sought]
    if window.cells is not None:  # rows without a stored input have no columns
        conditions.append(exists().where(inputs.c.id == predictions.c.id))
    found = _load(connection, window, spans, *conditions, classes=len(label_names), at_most=at_most)
    silence, silent_at = found.rows.label, found.rows.labelled_at
    labelled = load_labels_of(connection, window.model, found.rows.id, label_names=label_names)
    label, labelled_at = matched(found.rows.id, labelled)
    unheard = labelled_at == 0  # else a label came, perhaps one that the model lacks
    labelled_at = np.where(unheard, silent_at, labelled_at)
    label = np.where(unheard, silence, label)
    columns = found.rows.columns() | {
        "label": label,
        "labelled_at": labelled_at,
        "labelled": came(label, found.rows.was_sought(), found.rows.propensity),
    }
    return replace(found, rows=Rows(**columns))


def _load(
    connection: Connection,
    window: Window,
    spans: Sequence[Span],
    *conditions: ColumnElement[Any],
    classes: int,
    at_most: int,
) -> LogSample:
    made_here = _newest_origins(connection, replace(window, arising=()))  # with young rows
    logged = predictions.c
    others: Further = {
        "origin": (logged.origin, integers),
        "predicted": (logged.label, integers),
        "confidence": (logged.confidence, numbers),
    }
    reader = RowReader(classes, ids=True, others=others, arising=window.arising, cells=window.cells)
    share = max(at_most // max(len(spans) * len(made_here), 1), _SLICES)
    wholes = [_first(connection, reader, made_here, span, share, conditions) for span in spans]
    # Large spans get what small ones leave: a burst in a quiet week is not cut.
    small = sum(len(part["predicted_at"]) for whole, full in wholes if not full for part in whole)
    large = sum(full for _, full in wholes) * len(made_here)
    more = (at_most - small) // large if large else 0
    parts, sizes, cut = [reader.read(connection, [])], [], False
    for span, (whole, full) in zip(spans, wholes, strict=True):
        if full and more > share:
            whole, full = _first(connection, reader, made_here, span, more, conditions)
        if full:
            cut, whole = True, []
            edges = np.linspace(*span, _SLICES + 1).astype(np.int64).tolist()
            for part in pairwise(edges):
                whole += _first(connection, reader, made_here, part, max(more, share) // _SLICES, conditions)[0]
        parts += whole
        sizes.append(sum(len(part["predicted_at"]) for part in whole))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    names = np.array([made_here.get(number, "") for number in columns["origin"].tolist()], np.str_)
    number = np.repeat(np.arange(len(spans)), sizes)
    return LogSample(reader.rows(columns), names, number, columns["predicted"], columns["confidence"], cut)


def _newest_origins(connection: Connection, window: Window) -> dict[int, str]:
    """Return the revision of the newest origins with predictions in a window, by the origin's number."""
    # In order of the index: else PostgreSQL may scan all predictions for an origin that has none in the window.
    time = predictions.c.created_at
    here = select(time).where(predictions.c.origin == origins.c.id, *window.times()).order_by(time).limit(1)
    query = select(origins.c.id, origins.c.revision).where(
        origins.c.model == window.model,
        origins.c.model_digest == window.model_digest,
        here.scalar_subquery().is_not(None),
    )
    newest = query.order_by(origins.c.id.desc()).limit(_MOST_ORIGINS)
    return {row.id: row.revision for row in connection.execute(newest)}


def _first(
    connection: Connection,
    reader: RowReader,
    made_here: dict[int, str],
    span: Span,
    share: int,
    conditions: Sequence[ColumnElement[Any]],
) -> tuple[list[dict[str, NDArray[Any]]], bool]:
    """Return the first rows of a span up to a time until which no origin lacks any, and whether that is before its end.

    One query for each origin reads along the index; for several at once PostgreSQL would sort all rows of the span.
    """
    time = predictions.c.created_at
    parts = []
    for origin in made_here:
        here = predictions.c.origin == origin, time >= span[0], time < span[1], *conditions
        parts.append(reader.read(connection, [reader.query().where(*here).order_by(time).limit(share)]))
    ends = [int(part["predicted_at"][-1]) for part in parts if len(part["predicted_at"]) == share]
    if not ends:
        return parts, False
    kept = [part["predicted_at"] <= min(ends) for part in parts]
    return [{name: column[rows] for name, column in part.items()} for part, rows in zip(parts, kept, strict=True)], True
