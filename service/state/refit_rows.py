"""What a refit reads of a model's traffic: labelled and unlabelled predictions of the same span of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from service.errors import TooFewLabelsError
from service.state.labelled import LabelledRows, load_labelled_rows
from service.state.unlabelled import UnlabelledRows, load_unlabelled_rows
from service.state.window import Window
from service.times import iso


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Predictions of one model file.

    Attributes:
        labelled: Those with a label.
        unlabelled: All others of the same time.
        left_out_before: Time before which some are left out, in microseconds since the epoch; None when none are.
    """

    labelled: LabelledRows
    unlabelled: UnlabelledRows
    left_out_before: int | None


def load_window_rows(
    connection: Connection, window: Window, *, label_names: Sequence[str], at_least: int, at_most: int
) -> WindowRows:
    """Read the predictions of a window, the newest where there are too many.

    Args:
        connection: Inside a read transaction, one for all that is read: a label that comes in between puts no row into
            both parts.
        window: Which predictions.
        label_names: The model's K labels, in the order of its logits.
        at_least: Labelled predictions that are needed.
        at_most: Labels that are read.

    Raises:
        TooFewLabelsError: There are fewer than `at_least`, because newer predictions without a label leave no room.
    """
    unlabelled = load_unlabelled_rows(connection, window, classes=len(label_names))
    started = window
    if unlabelled.since_us is not None:  # where some are left out, labelled rows would speak for them
        window = replace(window, since_us=unlabelled.since_us)
        unlabelled = unlabelled.since(unlabelled.since_us)
    labelled = load_labelled_rows(connection, window, label_names=label_names, at_most=at_most)
    if unlabelled.since_us is not None and len(labelled) < at_least:
        raise TooFewLabelsError(
            "The newest predictions have too few labels yet, and they are as many as a refit reads.",
            where="/source/feedback/until",
            found=f"{len(labelled)} labelled among {len(labelled) + len(unlabelled)} since {iso(unlabelled.since_us)}",
            expected=f"at least {at_least}",
            remedy='End the window where the labels have come: {"source": {"feedback": {"until": "…"}}}.',
        )
    if labelled.since_us is not None:
        window = replace(window, since_us=labelled.since_us)
        unlabelled = unlabelled.since(labelled.since_us)
    return WindowRows(labelled, unlabelled, window.since_us if window.since_us != started.since_us else None)
