"""The rows of a recalibration: labelled and unlabelled predictions of a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from service.decisions.double_labels import LabelPairs
from service.decisions.rows import NO_LABEL, Rows
from service.state import unlabelled
from service.state.labelled import LabelledRows, load_labelled_rows
from service.state.log_files import LogFiles
from service.state.rescoring import Rescoring
from service.state.thinning import drawn
from service.state.window import Window


@dataclass(frozen=True, slots=True, eq=False)
class WindowRows:
    """Logged predictions, or uploaded rows instead.

    Attributes:
        rows: Labelled rows, then the others; then the same of earlier models.
        pending: Targets of labels without a known prediction.
        conflicts: Predictions with different labels.
        unknown_labels: Predictions whose label the model lacks: rows without a label.
        rescored: Number of labelled rows of earlier models.
        left_out_before: Time before which rows are left out, in microseconds since the epoch; None if none are.
        pairs: Both labels of the rows that two people or sources labelled; None for uploaded rows.
        bits: Unlabelled rows are those of a sample of the groups, see `thinning`.
        log_files: Number of hours that were read from the log sink.
        passed_over: Number of hours with a file there that has other rows than the state, which were read from this.
        from_first: Whether a start that was chosen leaves out no row of the window that the rule sets.
    """

    rows: Rows
    pending: int = 0
    conflicts: int = 0
    unknown_labels: int = 0
    rescored: int = 0
    left_out_before: int | None = None
    pairs: LabelPairs | None = None
    bits: int = 0
    log_files: int = 0
    passed_over: int = 0
    from_first: bool = False

    @property
    def share(self) -> float:
        """Share of the groups whose unlabelled rows were read."""
        return 2.0**-self.bits


def load_window_rows(
    connection: Connection, window: Window, *, label_names: Sequence[str], at_most: int, sink: str | None = None
) -> WindowRows:
    """Read all labelled predictions of a window, and the unlabelled ones of all its groups or of a sample.

    Args:
        connection: Inside a single read transaction, so that a new label cannot put a row into both parts.
        window: Window of predictions.
        label_names: The model's K labels, in the order of its logits.
        at_most: Maximum labels; if there are more, those of the newest predictions.
        sink: Address of the log sink, from which hours with the same rows are read; None reads all from the database.

    Raises:
        CandorError: The log sink cannot be read.
    """
    files = None if sink is None else LogFiles(sink, connection, window)
    labelled = load_labelled_rows(connection, window, label_names=label_names, at_most=at_most, files=files)
    if labelled.since_us is not None:  # else unlabelled rows would stand for labelled ones that are left out
        window = replace(window, since_us=labelled.since_us)
    others, bits = unlabelled.load_sample(connection, window, labelled.rows, classes=len(label_names), files=files)
    return WindowRows(
        thinned(Rows.concat([_as_drawn(labelled, bits).without("id"), others]), bits),
        pending=labelled.pending,
        conflicts=labelled.conflicts,
        unknown_labels=labelled.unknown_labels,
        left_out_before=labelled.since_us,
        pairs=labelled.pairs,
        bits=bits,
        log_files=0 if files is None else len(files.hours),
        passed_over=0 if files is None else files.passed_over,
    )


def _as_drawn(labelled: LabelledRows, bits: int) -> Rows:
    """Return labelled rows; where silence is a label, those of the sample whose silent rows are here as well."""
    if not bits or labelled.silent is None:
        return labelled.rows
    return labelled.rows.take(drawn(labelled.rows.group, bits) | ~labelled.silent)


def thinned(rows: Rows, bits: int) -> Rows:
    """Return the labelled rows and those of a sample of the groups, and mark the latter as `drawn`."""
    if not bits:
        return rows
    sample = drawn(rows.group, bits)
    return replace(rows, drawn=sample).take(sample | (rows.label != NO_LABEL))


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
    others, since_us = unlabelled.load_scored_again(
        connection, whole, again, classes=len(label_names), at_most=unlabelled_at_most
    )
    labelled = load_labelled_rows(connection, window, label_names=label_names, at_most=labelled_at_most, again=again)
    if labelled.since_us is not None:
        since_us = max(labelled.since_us, since_us or 0)
        others = others.since(since_us)
    earlier = Rows.concat([_as_drawn(labelled, found.bits).without("id"), others])
    starts = [time for time in (whole_since, since_us) if time is not None]
    if starts:
        earlier = replace(earlier, whole=earlier.predicted_at >= max(starts))
    return replace(
        found,
        rows=Rows.concat([found.rows, thinned(earlier, found.bits)]),
        conflicts=found.conflicts + labelled.conflicts,
        unknown_labels=found.unknown_labels + labelled.unknown_labels,
        rescored=int((labelled.rows.label != NO_LABEL).sum()),
    )
