"""Time windows of requests, and the newest predictions in them."""

from __future__ import annotations

from datetime import datetime

from service.decisions.rows import Rows
from service.errors import InputValueError
from service.places import Place
from service.runtime import Runtime
from service.serving.plane import Served
from service.state.recent import load_recent_rows, rows_at_once
from service.state.row_cells import RowCells
from service.state.window import Window
from service.times import iso, microseconds


def window_of(served: Served, since: datetime | None, until: datetime | None, *, where: Place) -> Window:
    """Return the window of an active model's predictions from `since` to `until`, either None for no limit.

    Args:
        served: The active revision.
        since: Start, included.
        until: End, excluded.
        where: Place of the times in the request, for the error.

    Raises:
        InputValueError: The window is empty.
    """
    start, end = (None if time is None else microseconds(time) for time in (since, until))
    if start is not None and end is not None and start >= end:
        raise InputValueError(
            "The window is empty.", where=where, found=f"{iso(start)} to {iso(end)}", expected="since < until"
        )
    cells = RowCells.of(served.bundle, served.calibrator)
    return Window(served.revision.model, served.revision.model_digest, start, end, cells=cells)


def recent_rows(runtime: Runtime, served: Served, window: Window, at_most: int) -> Rows:
    """Return the newest predictions of a window, oldest first; for many classes fewer than `at_most`."""
    most = rows_at_once(len(served.labels), at_most)
    with runtime.database.connect() as connection:
        return load_recent_rows(connection, window, label_names=served.labels, at_most=most)
