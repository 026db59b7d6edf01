"""Labelled rows: labels joined with their predictions, as numpy columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, distinct, func, select, union_all

from service.decisions.double_labels import LabelPairs
from service.decisions.rows import NO_LABEL, Rows
from service.state.columns import Codes, integers
from service.state.database import SET_BACK_US
from service.state.feedback import TARGETS_PER_QUERY
from service.state.label_joins import joined_with_labels
from service.state.log_files import LogFiles
from service.state.looked_up import by_look_up, looked_up
from service.state.partitions import first_id, time_of_id
from service.state.rescoring import Rescoring, with_inputs
from service.state.resolution import PRIORITY, weight
from service.state.row_cells import RowCells
from service.state.rows import Further, RowReader, joined
from service.state.tables import feedback, feedback_batches, predictions
from service.state.window import FOUND_OTHERWISE, Arising, Window, labels_of, origins_of

_PENDING_AMONG = 2_000  # a look-up by reference visits the index of every day
_POSITIONS = 1 << 32  # more than a batch of feedback can have, so that batch and position make one sortable number


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """Predictions of one model digest with their current labels.

    Attributes:
        rows: N rows, oldest first; labels are indices into `label_names`, `NO_LABEL` where the label is not among them.
        pending: Targets without a known prediction, among the newest labels since the window's start.
        conflicts: Predictions with different labels.
        unknown_labels: Predictions whose current label is not among `label_names`.
        since_us: Time from which no row is left out, in microseconds since the epoch; None if none is.
        silent: Whether silence would have been a label of each row, bool (N,); None if of no row.
        pairs: Both labels of the rows that two people or sources labelled; None where nobody asked for them.
    """

    rows: Rows
    pending: int
    conflicts: int
    unknown_labels: int
    since_us: int | None = None
    silent: NDArray[np.bool_] | None = None
    pairs: LabelPairs | None = None


def load_labelled_rows(
    connection: Connection,
    window: Window,
    *,
    label_names: Sequence[str],
    priority: Sequence[str] = PRIORITY,
    at_most: int | None = None,
    again: Rescoring | None = None,
    files: LogFiles | None = None,
) -> LabelledRows:
    """Join a model's labels with their predictions and resolve each current label.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        label_names: The model's K labels, in the order of its logits.
        priority: Sources, strongest first; all other sources are weaker. Among equals the later label wins.
        at_most: Maximum labels; those of the oldest predictions are left out.
        again: Read rows of earlier models that can be scored again, instead of the window's own.
        files: Read the predictions of their hours from there.

    Example:
        >>> from service.state.database import Database
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     database = Database.open(f"sqlite:///{folder}/state.db")
        ...     with database.connect() as connection:
        ...         found = load_labelled_rows(connection, Window("digits", "9f2c"), label_names=["cat", "dog"])
        ...     database.close()
        >>> found.rows.logits.shape, found.pending
        ((0, 2), 0)
    """
    reading = _Reading(label_names, priority, again, window.arising, window.cells)
    labels, since_us = reading.newest(connection, window, at_most, files)
    if since_us is not None:
        window = replace(window, since_us=since_us)
    found = reading.resolved(labels, pending=_pending(connection, window), senders=(connection, window.model))
    return replace(found, since_us=since_us)


def load_current_labels(connection: Connection, window: Window, *, label_names: Sequence[str]) -> Rows:
    """Return the labelled predictions of a window, each with its current label.

    Args:
        connection: Inside a read transaction.
        window: Window of predictions.
        label_names: The model's K labels; predictions with another current label have `NO_LABEL`.
    """
    reading = _Reading(label_names, PRIORITY, None)
    return reading.resolved(reading.read(connection, window, None), pending=0).rows


def load_labels_of(connection: Connection, model: str, ids: NDArray[np.bytes_], *, label_names: Sequence[str]) -> Rows:
    """Return the labelled ones among a model's predictions, each with its current label; see `load_current_labels`.

    Args:
        connection: Inside a read transaction.
        model: The model.
        ids: Ids of its predictions, ASCII bytes of shape (N,).
        label_names: The model's K labels.
    """
    reading = _Reading(label_names, PRIORITY, None)
    return reading.resolved(reading.read_of(connection, model, ids.astype(np.str_).tolist()), pending=0).rows


class _Reading:
    """Reads every label of a window with its prediction, and reduces them to one label per prediction."""

    def __init__(
        self,
        label_names: Sequence[str],
        priority: Sequence[str],
        again: Rescoring | None,
        arising: Sequence[Arising] = (),
        cells: RowCells | None = None,
    ) -> None:
        self._classes = len(label_names)
        self._priority = priority
        self._again = again
        self._arising = arising
        self._sources = Codes()
        self._of_labels: Further = {
            "label": (feedback.c.label, Codes(label_names)),
            "source": (feedback.c.source, self._sources),
            "said_at": (func.coalesce(feedback.c.labelled_at, feedback.c.received_at), integers),
            "received_at": (feedback.c.received_at, integers),
            "place": (feedback.c.batch * _POSITIONS + feedback.c.position, integers),
        }
        self._reader = RowReader(
            self._classes, again=again, ids=True, arising=arising, others=self._of_labels, cells=cells
        )

    def newest(
        self, connection: Connection, window: Window, at_most: int | None, files: LogFiles | None
    ) -> tuple[dict[str, NDArray[Any]], int | None]:
        """Return the labels of the window's predictions; with more than `at_most`, those of the newest ones.

        Returns:
            The labels, and the time from which none is left out, in microseconds since the epoch; None if none is.
        """
        if files is not None:
            labels, since_us = self.newest(connection, files.rest(window), at_most, None)
            return self._with_files(connection, files, window, labels, since_us, at_most)
        last = None if at_most is None else self.time_of_newest(connection, window, at_most)
        if last is None:
            labels = self.read(connection, window, at_most)
            if at_most is None or len(labels["label"]) <= at_most:
                return labels, None
            last = self.time_of(connection, window, at_most)
            assert last is not None  # noqa: S101
        return self.read(connection, replace(window, since_us=last + 1), None), last + 1

    def _with_files(
        self,
        connection: Connection,
        files: LogFiles,
        window: Window,
        labels: dict[str, NDArray[Any]],
        since_us: int | None,
        at_most: int | None,
    ) -> tuple[dict[str, NDArray[Any]], int | None]:
        """Add the labels of files to those from the state, as `newest` returns both."""
        parts, held = [labels], len(labels["label"])
        for hour in reversed(files.hours):
            part = window if since_us is None else replace(window, since_us=since_us)
            for found in files.labelled(connection, hour, part, self._reader, self._of_labels):
                parts.append(found)
                held += len(found["label"])
            if at_most is not None and held > 2 * at_most:
                labels, since_us = _newest(parts, since_us, at_most)
                parts, held = [labels], len(labels["label"])
        return _newest(parts, since_us, at_most)

    def read(self, connection: Connection, window: Window, at_most: int | None) -> dict[str, NDArray[Any]]:
        """Return the labels of the window's predictions, up to one more than `at_most`."""
        queries = self._queries(connection, window)
        if connection.dialect.name == "sqlite" and window.since_us is None:
            # Else SQLite scans the labels in order of time, with separate look-ups of each and its prediction.
            queries = [query.order_by(feedback.c.target) for query in queries]
        if at_most is not None:
            queries = [query.limit(at_most + 1) for query in queries]
        return self._reader.read(connection, queries)

    def read_of(self, connection: Connection, model: str, ids: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return the labels of some predictions."""
        by_id, by_reference = ((feedback.c.model == model, feedback.c.by_reference == kind) for kind in (0, 1))
        queries: list[Select[Any]] = []
        for start in range(0, len(ids), TARGETS_PER_QUERY):
            some = ids[start : start + TARGETS_PER_QUERY]
            among = feedback.c.target.in_(some), *by_id
            queries.append(looked_up(connection, self._reader.query(), feedback, feedback.c.target, among=among))
            here = predictions.c.id.in_(some)
            reference = predictions.c.reference
            names = list(connection.scalars(select(reference).where(here, reference.is_not(None))))
            if names:
                named = self._reader.query().join_from(predictions, feedback, feedback.c.target == reference)
                queries.append(named.where(here, feedback.c.target.in_(names), *by_reference))
        return self._reader.read(connection, queries)

    def time_of_newest(self, connection: Connection, window: Window, place: int) -> int | None:
        """Return what `time_of` returns if that shows from the labels of the newest ids alone; None otherwise."""
        ids = select(feedback.c.target).where(feedback.c.model == window.model, feedback.c.by_reference == 0)
        if window.until_us is not None:
            ids = ids.where(feedback.c.target < first_id(window.until_us + SET_BACK_US))
        id_ = connection.execute(ids.order_by(feedback.c.target.desc()).limit(1).offset(place)).scalar()
        since_us = 0 if id_ is None else time_of_id(id_) - SET_BACK_US
        if since_us <= (window.since_us or 0):
            return None
        return self.time_of(connection, replace(window, since_us=since_us), place)

    def time_of(self, connection: Connection, window: Window, place: int) -> int | None:
        """Return the time of the labelled prediction at `place`, counted from the newest; None if there are fewer."""
        queries = self._queries(connection, window)
        times = union_all(*(query.with_only_columns(query.selected_columns.created_at) for query in queries)).subquery()
        newest_first = select(times.c.created_at).order_by(times.c.created_at.desc()).limit(1).offset(place)
        return connection.execute(newest_first).scalar()

    def _queries(self, connection: Connection, window: Window) -> list[Select[Any]]:
        """Return the queries for labels by prediction id and by reference."""
        again = self._again
        made_here = window.origins(connection) if again is None else again.origins(connection, window)
        query = self._reader.query()
        queries = joined_with_labels(connection, query, window, made_here, look_up=again is None)
        return queries if again is None else [with_inputs(query) for query in queries]

    def resolved(
        self, labels: dict[str, NDArray[Any]], *, pending: int, senders: tuple[Connection, str] | None = None
    ) -> LabelledRows:
        """Reduce labels to one per prediction, and to pairs if it is said where senders of a model's labels are.

        `pending` is passed through.
        """
        ids, label = labels["id"], labels["label"]
        by_id = np.argsort(ids, kind="stable")
        new = np.ones(len(ids), dtype=np.bool_)
        new[1:] = ids[by_id[1:]] != ids[by_id[:-1]]
        prediction = np.empty(len(ids), dtype=np.int64)
        prediction[by_id] = np.cumsum(new)  # numbered in order of ids

        strengths = np.array([weight(name, self._priority) for name in self._sources], dtype=np.int64)
        order = np.lexsort((labels["place"], labels["said_at"], strengths[labels["source"]], prediction))
        first = np.flatnonzero(new)
        current = order[np.append(first[1:], len(ids)) - 1] if len(ids) else order
        disagree = _per_group(np.minimum, label[order], first) != _per_group(np.maximum, label[order], first)
        labelled_at = _per_group(np.minimum, labels["received_at"][order], first)

        known = label[current] < self._classes
        keep = np.argsort(labels["predicted_at"][current], kind="stable")
        which = current[keep]
        rows = self._reader.rows(labels, which, label=label[which].astype(np.int64), labelled_at=labelled_at[keep])
        if not known.all():  # only now: silence is not a label of these rows
            has = known[keep]
            rows = replace(rows, label=np.where(has, rows.label, NO_LABEL), labelled=rows.known() & has)
        pairs = None
        if senders is not None:
            other = _other_label(*senders, labels, order, first)[keep]
            double = (other != NO_LABEL) & known[keep]
            pairs = LabelPairs(rows.label[double], other[double], rows.group[double])
        return LabelledRows(
            rows,
            pending=pending,
            conflicts=int(disagree.sum()),
            unknown_labels=int((~known).sum()),
            silent=self._reader.silence(labels, which)[0] != NO_LABEL if self._arising else None,
            pairs=pairs,
        )


def _newest(
    parts: Sequence[dict[str, NDArray[Any]]], since_us: int | None, at_most: int | None
) -> tuple[dict[str, NDArray[Any]], int | None]:
    """Return the labels of the newest predictions in some parts, and the time from which none is left out."""
    labels = joined(parts)
    times = labels["predicted_at"]
    if at_most is None or len(times) <= at_most:
        return labels, since_us
    since_us = int(np.partition(times, -1 - at_most)[-1 - at_most]) + 1
    kept = times >= since_us
    return {name: column[kept] for name, column in labels.items()}, since_us


def _other_label(
    connection: Connection,
    model: str,
    labels: dict[str, NDArray[Any]],
    order: NDArray[np.intp],
    first: NDArray[np.intp],
) -> NDArray[np.int64]:
    """Return for each prediction the strongest label that another person or source gave than the current one.

    Args:
        connection: Inside a read transaction.
        model: The model.
        labels: Labels as read.
        order: Indices of the labels by prediction, the current one last.
        first: Place in `order` of the first label of each prediction.

    Returns:
        Labels, `NO_LABEL` where there is no other.
    """
    count = np.diff(np.append(first, len(order)))
    found, several = np.full(len(first), NO_LABEL), count > 1
    at, count = order[np.repeat(several, count)], count[several]
    if not len(at):
        return found
    sender = _senders(connection, model, labels["place"][at] // _POSITIONS)
    source = labels["source"][at]
    last = np.cumsum(count) - 1
    current = np.repeat(last, count)
    others = (sender != sender[current]) & (sender >= 0) & (sender[current] >= 0)  # unknown: it may be the same person
    place = np.where(others | (source != source[current]), np.arange(len(at)), -1)
    place = np.maximum.reduceat(place, last - count + 1)
    found[several] = np.where(place >= 0, labels["label"][at[place]], NO_LABEL)
    return found


def _senders(connection: Connection, model: str, batches: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for the sender of each request, −1 where it is no longer known."""
    numbers, which = np.unique(batches, return_inverse=True)
    by: dict[int, str] = {}
    table = feedback_batches.c
    for start in range(0, len(numbers), TARGETS_PER_QUERY):
        some = numbers[start : start + TARGETS_PER_QUERY].tolist()
        query = select(table.batch, table.by).where(table.model == model, table.batch.in_(some))
        by |= dict(connection.execute(query).all())
    names = {name: number for number, name in enumerate(sorted(set(by.values())))}
    return np.array([names[by[number]] if number in by else -1 for number in numbers.tolist()], np.int64)[which]


def _pending(connection: Connection, window: Window) -> int:
    """Count targets without a known prediction, among the newest labels of each kind since the window's start."""
    here = origins_of(connection, window.model)
    count = 0
    for by_reference, name in enumerate((predictions.c.id, predictions.c.reference)):
        labels = select(feedback.c.target).where(labels_of(window.model, by_reference))
        if window.since_us is not None:
            labels = labels.where(feedback.c.received_at >= window.since_us - SET_BACK_US)
        newest = labels.order_by(feedback.c.received_at.desc()).limit(_PENDING_AMONG).subquery("newest")
        known = by_look_up(
            connection, select(predictions.c.id).where(name == newest.c.target, FOUND_OTHERWISE.in_(here))
        )
        count += connection.execute(select(func.count(distinct(newest.c.target))).where(~known)).scalar_one()
    return count


def _per_group(reduce: np.ufunc, values: NDArray[Any], first: NDArray[np.intp]) -> NDArray[Any]:
    """Reduce each run of values that starts at one of `first`."""
    reduced: NDArray[Any] = reduce.reduceat(values, first) if len(first) else values
    return reduced
