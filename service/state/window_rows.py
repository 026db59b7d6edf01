"""The rows of a recalibration: labelled and unlabelled predictions of a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from service.decisions.rows import Rows
from service.errors import TooFewLabelsError
from service.state.labelled import load_labelled_rows
from service.state.rescoring import Rescoring
from service.state.unlabelled import load_unlabelled_rows
from service.state.window import Window
from service.times import iso


@dataclass(frozen=True, slots=True, eq=False)
class WindowRows:
    """Logged predictions, or uploaded rows instead.

    Attributes:
        rows: Labelled rows, then the others; then the same of earlier models.
        pending: Targets of labels without a known prediction.
        conflicts: Predictions with different labels.
        unknown_labels: Predictions left out because the model lacks their label.
        rescored: Number of labelled rows of earlier models.
        left_out_before: Time before which some rows are left out, in microseconds since the epoch; None if none are.
    """

    rows: Rows
    pending: int = 0
    conflicts: int = 0
    unknown_labels: int = 0
    rescored: int = 0
    left_out_before: int | None = None


def load_window_rows(
    connection: Connection, window: Window, *, label_names: Sequence[str], at_least: int, at_most: int
) -> WindowRows:
    """Read the predictions of a window; if there are too many, the newest.

    Args:
        connection: Inside a single read transaction, so that a new label cannot put a row into both parts.
        window: Window of predictions.
        label_names: The model's K labels, in the order of its logits.
        at_least: Minimum labelled predictions.
        at_most: Maximum labels.

    Raises:
        TooFewLabelsError: Unlabelled newer predictions leave room for fewer than `at_least` labelled ones.
    """
    unlabelled, since_us = load_unlabelled_rows(connection, window, classes=len(label_names))
    started = window
    if since_us is not None:  # else labelled rows would stand for rows that are left out
        window = replace(window, since_us=since_us)
        unlabelled = unlabelled.since(since_us)
    labelled = load_labelled_rows(connection, window, label_names=label_names, at_most=at_most)
    if since_us is not None and len(labelled.rows) < at_least:
        raise TooFewLabelsError(
            "The newest predictions fill the row limit, but too few of them are labelled yet.",
            where="/source/feedback/until",
            found=f"{len(labelled.rows)} labelled among {len(labelled.rows) + len(unlabelled)} since {iso(since_us)}",
            expected=f"at least {at_least}",
            remedy='End the window where labels are complete: {"source": {"feedback": {"until": "…"}}}.',
        )
    if labelled.since_us is not None:
        window = replace(window, since_us=labelled.since_us)
        unlabelled = unlabelled.since(labelled.since_us)
    return WindowRows(
        Rows.concat([labelled.rows.without("id"), unlabelled]),
        pending=labelled.pending,
        conflicts=labelled.conflicts,
        unknown_labels=labelled.unknown_labels,
        left_out_before=window.since_us if window.since_us != started.since_us else None,
    )


def with_earlier_rows(
    found: WindowRows,
    connection: Connection,
    window: Window,
    again: Rescoring,
    *,
    label_names: Sequence[str],
    labelled_at_most: int,
    unlabelled_at_most: int,
) -> WindowRows:
    """Add a window's predictions of earlier models with stored inputs, scored again.

    Args:
        found: Rows of the window's own model.
        connection: Inside a read transaction.
        window: Window of predictions.
        again: Scores the inputs.
        label_names: The model's K labels, in the order of its logits.
        labelled_at_most: Maximum labels.
        unlabelled_at_most: Maximum unlabelled predictions, the newest.
    """
    whole_since = again.whole_since_us(connection, window)
    whole = window if whole_since is None else replace(window, since_us=whole_since)
    unlabelled, since_us = load_unlabelled_rows(
        connection, whole, classes=len(label_names), at_most=unlabelled_at_most, again=again
    )
    labelled = load_labelled_rows(connection, window, label_names=label_names, at_most=labelled_at_most, again=again)
    if labelled.since_us is not None:
        since_us = max(labelled.since_us, since_us or 0)
        unlabelled = unlabelled.since(since_us)
    earlier = Rows.concat([labelled.rows.without("id"), unlabelled])
    starts = [time for time in (whole_since, since_us) if time is not None]
    if starts:
        earlier = replace(earlier, whole=earlier.predicted_at >= max(starts))
    return replace(
        found,
        rows=Rows.concat([found.rows, earlier]),
        conflicts=found.conflicts + labelled.conflicts,
        rescored=len(labelled.rows),
    )
