"""Read the log from the files of its sink; see `log_sink`.

An hour is read from its file if this has exactly the ids of the state; every other hour is read from the state, and so
are all labels. So the rows are those that the state alone would give: a file that still has erased or deleted rows, or
lacks those that came too late for it, is passed over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, func, select

from service.errors import CandorError
from service.state.columns import ascii_texts, read_columns
from service.state.database import SET_BACK_US
from service.state.log_sink import HOUR_US, ORIGIN, Place, file_name, schema
from service.state.partitions import first_id, time_of_id
from service.state.rows import Further, RowReader
from service.state.tables import feedback, origins, predictions
from service.state.thinning import INDEXED_BITS, bits_of, drawn
from service.state.window import AFTER_EVERY_ID, FOUND_OTHERWISE, Window

ROWS_PER_BATCH: Final = 65_536
_T = TypeVar("_T")


class Counted(NamedTuple):
    """Rows of files: all of them, and those of the sample that the state has in an index."""

    rows: int = 0
    indexed: int = 0

    def plus(self, groups: NDArray[np.int64]) -> Counted:
        """Count further rows of these groups."""
        return Counted(self.rows + len(groups), self.indexed + int(drawn(groups, INDEXED_BITS).sum()))


@dataclass(frozen=True, slots=True, eq=False)
class _Labels:
    """L labels: their columns, and their places by target."""

    columns: dict[str, NDArray[Any]]
    places: dict[str, list[int]]

    def pairs(self, targets: Iterable[str | None]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which row goes with which label, each int64 (P,)."""
        found = [
            (row, place) for row, target in enumerate(targets) if target in self.places for place in self.places[target]
        ]
        rows, places = np.array(found, np.int64).reshape(-1, 2).T
        return rows, places


class LogFiles:
    """The files of a window that have the same rows of its model file as the state.

    Args:
        address: Folder, or URL for fsspec.
        connection: Inside a read transaction, also for the methods.
        window: Window of predictions; the methods take it or a part of it.

    Attributes:
        hours: The hours that are read from their file, oldest first, as microseconds since the epoch.
        passed_over: Number of hours that are not, since their file has other rows than the state.

    Raises:
        CandorError: The files cannot be read; also by the methods.
    """

    def __init__(self, address: str, connection: Connection, window: Window) -> None:
        self._place = Place(address)
        columns = (origins.c.id, *(origins.c[name] for name in ORIGIN))
        made_here = select(*columns).where(origins.c.id.in_(window.origins(connection)))
        self._numbers = {tuple(names): number for number, *names in connection.execute(made_here)}
        oldest, newest = (
            connection.execute(select(end(predictions.c.id))).scalar() for end in (func.min, func.max)
        )  # one query would scan SQLite's table
        self.hours: list[int] = []
        self.passed_over = 0
        if oldest is not None and newest is not None:
            first, last = time_of_id(max(oldest, window.first_id)), time_of_id(newest)
            if window.until_us is not None:
                last = min(last, window.until_us + SET_BACK_US)
            names = _attempted(self._place.names)
            for hour in range(first // HOUR_US * HOUR_US, last + 1, HOUR_US):
                if file_name(hour) in names and len(here := self._ids(connection, hour)):
                    filed = [ids for _, ids, _ in self._batches(hour)]
                    if np.array_equal(here, np.concatenate([here[:0], *filed])):
                        self.hours.append(hour)
                    else:
                        self.passed_over += 1
        starts = [window.first_id, *(first_id(hour + HOUR_US) for hour in self.hours)]
        ends = [*(first_id(hour) for hour in self.hours), AFTER_EVERY_ID]
        self._rest = [
            (since, until)
            for since, until in zip(starts, ends, strict=True)
            if since < until and _any(connection, since, until)
        ]
        self._named: _Labels | None = None

    def rest(self, window: Window) -> Window:
        """Return the part of a window that has no files."""
        since_us = time_of_id(self._rest[0][0]) - SET_BACK_US if self._rest else 0
        return replace(window, only=tuple(self._rest), since_us=max(window.since_us or 0, since_us))

    def labelled(
        self, connection: Connection, hour: int, window: Window, reader: RowReader, of_labels: Further
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the labels of an hour's predictions, as columns of the reader.

        Args:
            connection: As for the class.
            hour: One of `hours`.
            window: Window of predictions.
            reader: Reads columns of predictions and labels.
            of_labels: Those of labels.
        """
        if first_id(hour + HOUR_US) <= window.first_id:
            return
        by_id = _labels(connection, window.model, 0, of_labels, *_made_in(hour))
        if self._named is None:  # once: a reference does not tell when it was used
            self._named = _labels(connection, window.model, 1, of_labels)
        if not by_id.places and not self._named.places:
            return
        for rows, origin in self._read(hour, window):
            for labels, target in ((by_id, "id"), (self._named, "reference")):
                which, places = labels.pairs(rows.column(target).to_pylist() if labels.places else ())
                if len(which):
                    said = {name: column[places] for name, column in labels.columns.items()}
                    yield reader.converted(_values(_taken(rows, which), origin[which])) | said

    def unlabelled(
        self, connection: Connection, window: Window, reader: RowReader, at_most: int
    ) -> tuple[list[dict[str, NDArray[Any]]], Counted]:
        """Return unlabelled predictions as columns of the reader, and the count of all predictions.

        If there are many, these are the rows of a sample of the groups that contains the one of `thinning.bits_for`.

        Args:
            connection: As for the class.
            window: Window of predictions.
            reader: Reads columns of predictions.
            at_most: Expected rows at most.
        """
        parts: list[dict[str, NDArray[Any]]] = []
        counted = without = Counted()
        bits = 0
        named = set(_labels(connection, window.model, 1, {}).places)
        for hour in self.hours:
            if first_id(hour + HOUR_US) <= window.first_id:
                continue
            known = set(_labels(connection, window.model, 0, {}, *_made_in(hour)).places)
            for rows, origin in self._read(hour, window):
                groups = _integers(rows.column("group_hash"))
                counted = counted.plus(groups)
                free = np.array([id_ not in known for id_ in rows.column("id").to_pylist()], np.bool_)
                if named:
                    free &= [reference not in named for reference in rows.column("reference").to_pylist()]
                without = without.plus(groups[free])
                needed = bits_of(without.rows, without.indexed, at_most)  # grows with the rows, up to the sample's
                if needed > bits:
                    bits, parts = needed, [thinner(part, needed) for part in parts]
                which = np.flatnonzero(free & drawn(groups, bits))
                parts.append(reader.converted(_values(_taken(rows, which), origin[which])))
        return parts, counted

    def _read(self, hour: int, window: Window) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """Yield the rows of a file in the window, as Arrow record batches, with the numbers of their origins."""
        from arro3.core import DataType

        for rows, ids, origin in self._batches(hour):
            created_at = _integers(rows.column("created_at").cast(DataType.int64()))
            which = np.flatnonzero(window.holds(ids, created_at, origin))
            if len(which):
                yield _taken(rows, which), origin[which]

    def _batches(self, hour: int) -> Iterator[tuple[Any, NDArray[np.bytes_], NDArray[np.int64]]]:
        """Yield the model file's rows of an hour, as Arrow record batches, with their ids and numbers of origins."""
        from arro3.io import read_parquet

        name = file_name(hour)
        with _attempted(lambda: self._place.open(name), name) as stream:
            reader = _attempted(lambda: read_parquet(stream, batch_size=ROWS_PER_BATCH), name)
            while (found := _attempted(lambda: self._next(reader), name)) is not None:
                yield found

    def _next(self, reader: Any) -> tuple[Any, NDArray[np.bytes_], NDArray[np.int64]] | None:
        rows = next(reader, None)
        if rows is None:
            return None
        rows = _typed(rows)
        origin = self._origins_of(rows)
        which = np.flatnonzero(origin >= 0)
        rows = _taken(rows, which)
        return rows, ascii_texts(rows.column("id").to_pylist()), origin[which]

    def _ids(self, connection: Connection, hour: int) -> NDArray[np.bytes_]:
        """Return the ids of the model file's rows of an hour in the state."""
        ids = predictions.c.id
        query = select(ids).where(ids >= first_id(hour), ids < first_id(hour + HOUR_US))
        here = query.where(FOUND_OTHERWISE.in_(self._numbers.values())).order_by(ids)
        found: NDArray[np.bytes_] = read_columns(connection, [here], [ascii_texts])[0]
        return found

    def _origins_of(self, rows: Any) -> NDArray[np.int64]:
        """Return the number of each row's origin, int64 (N,); -1 for those of other model files."""
        from arro3.core import DataType, dictionary_dictionary, dictionary_indices

        kind = DataType.dictionary(DataType.int32(), DataType.string())
        coded = [rows.column(name).cast(kind) for name in ORIGIN]
        values = [dictionary_dictionary(column).to_pylist() for column in coded]
        sizes = [len(names) for names in values]
        if not rows.num_rows:
            return np.zeros(0, np.int64)
        codes = np.ravel_multi_index([_integers(dictionary_indices(column)) for column in coded], sizes)
        met, which = np.unique(codes, return_inverse=True)
        places = zip(*np.unravel_index(met, sizes), strict=True)
        names = (tuple(of[at] for of, at in zip(values, place, strict=True)) for place in places)
        return np.array([self._numbers.get(name, -1) for name in names], np.int64)[which]


def thinner(columns: dict[str, NDArray[Any]], bits: int) -> dict[str, NDArray[Any]]:
    """Return the rows of a sample of the groups; see `thinning`."""
    if not bits:
        return columns
    sample = drawn(columns["group"], bits)
    return {name: column[sample] for name, column in columns.items()}


def _labels(
    connection: Connection, model: str, by_reference: int, columns: Further, *where: ColumnElement[bool]
) -> _Labels:
    """Read a model's labels by id or by reference."""
    query = select(feedback.c.target, *(column for column, _ in columns.values())).where(
        feedback.c.model == model, feedback.c.by_reference == by_reference, *where
    )
    targets, *values = read_columns(connection, [query], [_objects, *(convert for _, convert in columns.values())])
    places: dict[str, list[int]] = defaultdict(list)
    for place, target in enumerate(targets):
        places[target].append(place)
    return _Labels(dict(zip(columns, values, strict=True)), dict(places))


def _made_in(hour: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the conditions that labels are for ids of an hour."""
    return feedback.c.target >= first_id(hour), feedback.c.target < first_id(hour + HOUR_US)


def _any(connection: Connection, since: str, until: str) -> bool:
    """Return whether the state has a prediction in a span of ids."""
    query = select(func.min(predictions.c.id)).where(predictions.c.id >= since, predictions.c.id < until)
    return connection.execute(query).scalar() is not None


def _values(rows: Any, origin: NDArray[np.int64]) -> dict[str, Any]:
    """Return the values of a batch by the names of a `RowReader`, as a database driver returns them."""
    from arro3.core import DataType, list_flatten

    texts = ("id", "propensity", "sought", "amount", "segment", "action")
    return {
        **{name: rows.column(name).to_pylist() for name in texts},
        "logits": [np.asarray(list_flatten(rows.column("logits")).to_numpy(), "<f4").tobytes()],
        "group": _integers(rows.column("group_hash")),
        "predicted_at": _integers(rows.column("created_at").cast(DataType.int64())),
        "origin": origin,
    }


def _typed(rows: Any) -> Any:
    """Return a batch with the columns and types of the sink; a file that somebody rewrote may have others."""
    from arro3.core import RecordBatch

    fields = schema()
    return RecordBatch.from_arrays(
        [rows.column(name).cast(fields.field(name).type) for name in fields.names], schema=fields
    )


def _taken(rows: Any, which: NDArray[np.int64]) -> Any:
    from arro3.core import Array

    return rows.take(Array.from_numpy(np.ascontiguousarray(which)))


def _integers(column: Any) -> NDArray[np.int64]:
    return np.asarray(column.to_numpy(), np.int64)


def _objects(values: Sequence[Any]) -> NDArray[np.object_]:
    found = np.empty(len(values), np.object_)
    found[:] = values
    return found


def _attempted(read: Callable[[], _T], name: str | None = None) -> _T:
    try:
        return read()
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        said = getattr(error, "found", None) or str(error)
        raise CandorError(
            "The log sink cannot be read.",
            where="CANDOR_LOG_SINK",
            found=said if name is None else f"{name}: {said}"[:300],
            remedy="Make it readable; or delete a damaged file, then its hour is written again. "
            "CANDOR_REFIT_FROM_SINK=false reads the database instead.",
        ) from error
