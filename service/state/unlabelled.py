"""Logged predictions without labels, which claims about all traffic must include."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Exists, Select, select

from service.decisions.rows import Rows
from service.state.label_joins import joined_with_labels
from service.state.log_files import LogFiles, thinner
from service.state.looked_up import by_look_up, looked_up
from service.state.rescoring import Rescoring, other_origins, with_inputs
from service.state.rows import RowReader, joined
from service.state.tables import feedback, predictions
from service.state.thinning import INDEXED_BITS, bits_for, in_draw
from service.state.window import Window, labels_of

MOST_ROWS = 500_000
"""Number of unlabelled rows above which a recalibration reads those of a sample of the groups."""

_AT_ONCE = 500  # ids of labelled predictions that are fetched together


def load_unlabelled_rows(
    connection: Connection, window: Window, *, classes: int, bits: int = 0, ids: bool = False
) -> Rows:
    """Return the unlabelled predictions of a window, oldest first; where silence is a label, they have it.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        classes: Number K of the model's labels.
        bits: Only those of a sample of the groups, see `thinning`.
        ids: Whether to keep their ids.
    """
    reader = RowReader(classes, ids=True, arising=window.arising, cells=window.cells)
    rows = _rows(reader, reader.read(connection, [_query(connection, window, reader, bits)]))
    return rows if ids else rows.without("id")


def load_sample(
    connection: Connection, window: Window, labelled: Rows, *, classes: int, files: LogFiles | None = None
) -> tuple[Rows, int]:
    """Return the unlabelled predictions of a window, as `load_unlabelled_rows`, or those of a sample of the groups.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        labelled: Its labelled rows.
        classes: Number K of the model's labels.
        files: Read the predictions of their hours from there.

    Returns:
        The rows, and the bits of the sample, see `thinning`.
    """
    reader = RowReader(classes, ids=True, arising=window.arising, cells=window.cells)
    parts: list[dict[str, NDArray[Any]]] = []
    counted = 0, 0
    if files is not None:
        parts, counted = files.unlabelled(connection, window, reader, MOST_ROWS)
        window = files.rest(window)
    bits = bits_for(connection, window, window.origins(connection), labelled.group, MOST_ROWS, counted)
    parts.append(reader.read(connection, [_query(connection, window, reader, bits)]))
    return _rows(reader, thinner(joined(parts), bits)).without("id"), bits


def _query(connection: Connection, window: Window, reader: RowReader, bits: int) -> Select[Any]:
    here = predictions.c.origin.in_(window.origins(connection)), *window.times(), *in_draw(bits)
    without = [~label for label in _labels(connection, window.model)]
    if bits < INDEXED_BITS:
        return reader.query().where(*here, *without)
    drawn = select(predictions.c.id).where(*here, *without).subquery("drawn")
    return looked_up(connection, reader.query(), drawn, drawn.c.id)


def _rows(reader: RowReader, columns: dict[str, NDArray[Any]]) -> Rows:
    rows = reader.rows(columns)
    return rows.take(np.lexsort((rows.id, rows.predicted_at)))


def load_scored_again(
    connection: Connection, window: Window, again: Rescoring, *, classes: int, at_most: int
) -> tuple[Rows, int | None]:
    """Return the most recent unlabelled predictions of earlier models, scored again.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        again: Scores the inputs.
        classes: Number K of the model's labels.
        at_most: Maximum rows.

    Returns:
        The rows, oldest first, and the time from which none is left out, in microseconds since the epoch; None if none
        is.
    """
    newest = (
        select(predictions.c.id)
        .where(predictions.c.origin.in_(again.origins(connection, window)), *window.times())
        .where(*(~label for label in _labels(connection, window.model)))
        .order_by(predictions.c.created_at.desc(), predictions.c.id.desc())
        .limit(at_most)
        .subquery()
    )
    reader = RowReader(classes, again=again, arising=window.arising, cells=window.cells)
    query = with_inputs(reader.query().join_from(predictions, newest, newest.c.id == predictions.c.id))
    rows = reader.rows(reader.read(connection, [query.order_by(predictions.c.created_at, predictions.c.id)]))
    # Other rows of the oldest row's microsecond may be left out.
    return rows, int(rows.predicted_at[0]) + 1 if len(rows) == at_most else None


def _labels(connection: Connection, model: str) -> list[Exists]:
    """Return the conditions that a prediction has a label: by id and, if the model has any, by reference.

    The first uses an index only, the second reads each prediction's row.
    """
    by_id, by_reference = (
        select(feedback.c.target).where(feedback.c.model == model, feedback.c.by_reference == kind) for kind in (0, 1)
    )
    labels = [by_look_up(connection, by_id.where(feedback.c.target == predictions.c.id))]
    if connection.execute(select(feedback.c.target).where(labels_of(model, 1)).limit(1)).first() is not None:
        labels.append(by_look_up(connection, by_reference.where(feedback.c.target == predictions.c.reference)))
    return labels


def count_labelled(connection: Connection, window: Window, *, at_most: int, input_spec: str | None = None) -> int:
    """Return how many predictions of a window have a label, up to `at_most`.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        at_most: Maximum count.
        input_spec: Include earlier models with these inputs, even if the inputs were not stored.
    """
    found = set[str]()
    made_here = window.origins(connection)
    if input_spec is not None:
        made_here += other_origins(connection, window, input_spec)
    for query in joined_with_labels(connection, select(predictions.c.id), window, made_here, ordered=False):
        # Row by row: DISTINCT would look all labels up before the first is returned.
        with connection.execute(query.execution_options(yield_per=_AT_ONCE)) as rows:
            for id_ in rows.scalars():
                found.add(id_)
                if len(found) >= at_most:
                    return at_most
    return len(found)
