"""Uploaded labelled sets: stored completely or not at all, in chunks, for all replicas."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from service.errors import LabelledSetStateError, UnknownLabelledSetError
from service.places import in_query
from service.state import audit
from service.state.database import Database, now_us
from service.state.inputs import type_of
from service.state.jobs import UNFINISHED
from service.state.numbering import number_in, take_number
from service.state.tables import jobs, labelled_rows, labelled_sets

Kind = Literal["logits", "inputs"]
Represents = Literal["traffic"]

COLUMN_TYPES: Final[Mapping[str, str]] = {
    "label": "<i4",
    "group": "<i8",
    "propensity": "<f8",
    "predicted_at": "<i8",
    "labelled_at": "<i8",
    "segment": "<i4",
}
"""Stored types of the columns besides `values`. −1 stands for no time or segment, NaN for an unknown propensity."""

_STORED_AS: Final = {"group": "cluster"}  # columns that the database calls otherwise

ABSENT: Final = -1
_BYTES_PER_CHUNK: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a set, from its check.

    Attributes:
        kind: "logits", or "inputs" to score with the model.
        rows: Number of rows.
        labels: Counts by name, in the order of the codes in `label`.
        segments: Names, in the order of the codes in `segment`.
        dtype: Type of one row's values, as `state.inputs.type_name` gives it.
        shape: Shape of one row's values.
        columns: Its columns among `COLUMN_TYPES`; always `label` and `group`.
    """

    kind: Kind
    rows: int
    labels: dict[str, int]
    segments: list[str]
    dtype: str
    shape: list[int]
    columns: list[str]


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """An uploaded set.

    Attributes:
        id: Name, such as "ls1".
        model: Its model.
        model_digest: The active model file at the upload; logits must come from it.
        sha256: Hash of the uploaded bytes, before any content encoding.
        bytes: Number of these bytes.
        rows: Number of rows.
        kind: "logits" or "inputs".
        represents: "traffic" if declared to be a random sample of the traffic.
        labels: Rows by label.
        segments: Names of the rows' segments.
        dtype: Type of one row's values, as `state.inputs.type_name` gives it.
        shape: Shape of one row's values.
        by: Actor who uploaded it.
        created_at: Microseconds since the epoch, UTC.
        by_key: Prefix of the uploader's API key, or the id of a person; None without one.
    """

    id: str
    model: str
    model_digest: str
    sha256: str
    bytes: int
    rows: int
    kind: Kind
    represents: Represents | None
    labels: dict[str, int]
    segments: list[str]
    dtype: str
    shape: list[int]
    by: str
    created_at: int
    by_key: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive rows of a set.

    Attributes:
        values: Logits or inputs, (n, …).
        columns: The set's other columns by name.
    """

    values: npt.NDArray[Any]
    columns: Mapping[str, npt.NDArray[Any]]


ReadColumn = Callable[[str, int, int], bytes]
"""Returns the bytes of a column or "values"; arguments: its name, the first row, the number of rows."""


class LabelledSetStore:
    """Uploaded sets of all models. All methods raise StateUnavailableError when the database does not answer.

    Args:
        database: The state.
        max_sets: Maximum number of sets of one uploader.
        max_bytes: Maximum size of all sets of one uploader together.
    """

    def __init__(self, database: Database, *, max_sets: float = math.inf, max_bytes: float = math.inf) -> None:
        self._database = database
        self._max_sets = max_sets
        self._max_bytes = max_bytes

    def find(self, model: str, model_digest: str, sha256: str, represents: Represents | None) -> LabelledSet | None:
        """Return the existing set with these bytes; None if they are new.

        Raises:
            LabelledSetStateError: The set has another declaration.
        """
        with self._database.connect() as connection:
            return _same(connection, model, model_digest, sha256, represents)

    def check_room(self, by: str, size: int) -> None:
        """Refuse a set early that `add` would refuse.

        Raises:
            LabelledSetStateError: This uploader's sets, of all models, would be too many or too large together.
        """
        with self._database.connect() as connection:
            self._check_room(connection, by, size)

    def add(
        self,
        model: str,
        model_digest: str,
        sha256: str,
        *,
        size: int,
        represents: Represents | None,
        content: Content,
        read: ReadColumn,
        by: str,
        by_key: str | None = None,
    ) -> LabelledSet:
        """Store a set durably, or nothing if this fails.

        Each chunk is a separate transaction, so other writers wait for one chunk at most. The next start or upload
        removes the remains of a crash.

        Args:
            model: Its model.
            model_digest: The active model file.
            sha256: Hash of the uploaded bytes.
            size: Number of these bytes.
            represents: Declared population of the sample; recorded in the audit log.
            content: Result of the check.
            read: Returns the rows.
            by: Actor.
            by_key: Prefix of the actor's API key, or the id of a person.

        Raises:
            LabelledSetStateError: The same bytes were stored meanwhile with another declaration, or the uploader's sets
                would be too many or too large together.
        """
        with self._database.locked(_lock(model)):
            self._remove_remains(model)
            if (same := self.find(model, model_digest, sha256, represents)) is not None:
                return same
            row: dict[str, Any] = {
                name: getattr(content, name) for name in ("kind", "rows", "labels", "segments", "dtype", "shape")
            }
            row |= {"model": model, "model_digest": model_digest, "sha256": sha256, "bytes": size}
            row |= {"represents": represents, "by": by, "by_key": by_key}
            with self._database.begin() as connection:
                number = take_number(connection, "labelled set")  # other uploads wait, so that none is counted late
                self._check_room(connection, by, size)
                connection.execute(insert(labelled_sets).values(number=number, created_at=now_us(), whole=False, **row))
            try:
                self._write_rows(number, content, read)
                with self._database.begin() as connection:
                    now = {"whole": True, "created_at": now_us()}
                    connection.execute(update(labelled_sets).where(labelled_sets.c.number == number).values(**now))
                    detail = {name: row[name] for name in ("sha256", "bytes", "rows", "kind", "represents")}
                    audit.append(connection, model=model, by=by, action="upload", subject=f"ls{number}", detail=detail)
                    return _get(connection, model, number)
            except BaseException:
                self._remove_remains(model)
                raise

    def get(self, model: str, id_: str) -> LabelledSet:
        """Return one set.

        Raises:
            UnknownLabelledSetError: The model does not have this set.
        """
        with self._database.connect() as connection:
            return _get(connection, model, _number(model, id_))

    def list(self, model: str) -> tuple[LabelledSet, ...]:
        """Return a model's sets, newest first."""
        query = _SELECT.where(labelled_sets.c.model == model, labelled_sets.c.whole)
        with self._database.connect() as connection:
            return tuple(_set(row) for row in connection.execute(query.order_by(labelled_sets.c.number.desc())))

    def holding(self, model: str, group: int) -> tuple[str, ...]:
        """Return the ids of a model's sets with a row of this group (a keyed hash), oldest first; reads all groups."""
        query = (
            select(labelled_rows.c.set, labelled_rows.c.cluster)
            .join(labelled_sets, labelled_sets.c.number == labelled_rows.c.set)
            .where(labelled_sets.c.model == model, labelled_sets.c.whole)
            .execution_options(yield_per=1)
        )
        with self._database.connect() as connection:
            found = {
                number
                for number, groups in connection.execute(query)
                if (np.frombuffer(groups, COLUMN_TYPES["group"]) == group).any()
            }
        return tuple(f"ls{number}" for number in sorted(found))

    def delete(self, model: str, id_: str, *, by: str) -> None:
        """Delete a set.

        Raises:
            UnknownLabelledSetError: The model does not have this set.
            LabelledSetStateError: An unfinished job uses it.
        """
        number = _number(model, id_)
        with self._database.begin() as connection:
            found = _get(connection, model, number)
            waiting = select(jobs.c.number).where(
                jobs.c.model == model,
                jobs.c.state.in_(UNFINISHED),
                jobs.c.request["labelled_set"].as_string() == found.id,
            )
            if used_by := connection.scalars(waiting.order_by(jobs.c.number)).all():
                raise LabelledSetStateError(
                    f"{found.id} is in use.",
                    where=found.id,
                    found=[f"j{job}" for job in used_by],
                    expected="no queued or running job",
                    remedy="Wait for the jobs, then delete it.",
                )
            _delete(connection, number)
            audit.append(connection, model=model, by=by, action="delete_labelled_set", subject=found.id)

    def chunks(self, found: LabelledSet) -> Iterator[Chunk]:
        """Yield the rows of a set in the order of the file, a few MB at a time."""
        query = select(labelled_rows).where(labelled_rows.c.set == _number(found.model, found.id))
        query = query.order_by(labelled_rows.c.first).execution_options(yield_per=1)
        with self._database.connect() as connection:
            for row in connection.execute(query).mappings():
                stored = {name: row[_STORED_AS.get(name, name)] for name in COLUMN_TYPES}
                columns = {
                    name: np.frombuffer(content, COLUMN_TYPES[name])
                    for name, content in stored.items()
                    if content is not None
                }
                yield Chunk(np.frombuffer(row["values"], _row_type(found)), columns)

    def sweep(self) -> None:
        """Remove remains of crashes, unless another server is storing a set."""
        with self._database.connect() as connection:
            models = connection.scalars(select(labelled_sets.c.model).where(~labelled_sets.c.whole).distinct()).all()
        for model in models:
            with self._database.try_lock(_lock(model)) as taken:
                if taken:
                    self._remove_remains(model)

    def _check_room(self, connection: Connection, by: str, size: int) -> None:
        query = select(func.count(), func.coalesce(func.sum(labelled_sets.c.bytes), 0))
        sets, kept = connection.execute(query.where(labelled_sets.c.by == by)).one()
        if sets >= self._max_sets or kept + size > self._max_bytes:
            raise LabelledSetStateError(
                f"{by!r} has reached the limit of stored labelled sets.",
                found=f"{sets} sets with {kept} bytes, and {size} bytes more",
                expected=f"at most {self._max_sets} sets and {self._max_bytes} bytes",
                remedy="Delete some (candor labelled-sets delete), or raise CANDOR_MAX_LABELLED_SETS_PER_KEY or "
                "CANDOR_MAX_LABELLED_BYTES_PER_KEY.",
            )

    def _write_rows(self, number: int, content: Content, read: ReadColumn) -> None:
        size = max(1, _BYTES_PER_CHUNK // _row_type(content).itemsize)
        for first in range(0, content.rows, size):
            rows = min(size, content.rows - first)
            columns = {_STORED_AS.get(name, name): read(name, first, rows) for name in ("values", *content.columns)}
            with self._database.begin() as connection:
                connection.execute(insert(labelled_rows).values(set=number, first=first, rows=rows, **columns))

    def _remove_remains(self, model: str) -> None:
        """Remove incomplete sets; the caller holds the model's lock, so none is being written."""
        remains = select(labelled_sets.c.number).where(labelled_sets.c.model == model, ~labelled_sets.c.whole)
        with self._database.connect() as connection:
            numbers = connection.scalars(remains).all()
        for number in numbers:
            with self._database.begin() as connection:
                _delete(connection, number)


_FIELDS = tuple(field.name for field in dataclasses.fields(LabelledSet) if field.name != "id")
_SELECT = select(labelled_sets.c.number, *(labelled_sets.c[name] for name in _FIELDS))


def _set(row: Row[Any]) -> LabelledSet:
    return LabelledSet(f"ls{row.number}", **{name: getattr(row, name) for name in _FIELDS})


def _number(model: str, id_: str) -> int:
    number = number_in("ls", id_)
    if number is None:
        raise UnknownLabelledSetError(f"{model} has no labelled set {id_}.", found=id_, expected='"ls" and a number')
    return number


def _get(connection: Connection, model: str, number: int) -> LabelledSet:
    query = _SELECT.where(labelled_sets.c.number == number, labelled_sets.c.model == model, labelled_sets.c.whole)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownLabelledSetError(
            f"{model} has no labelled set ls{number}.",
            found=f"ls{number}",
            remedy=f"List the labelled sets of {model} to see those it has.",
        )
    return _set(row)


def _same(
    connection: Connection, model: str, model_digest: str, sha256: str, represents: Represents | None
) -> LabelledSet | None:
    query = _SELECT.where(
        labelled_sets.c.model == model,
        labelled_sets.c.model_digest == model_digest,
        labelled_sets.c.sha256 == sha256,
        labelled_sets.c.whole,
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    found = _set(row)
    if found.represents != represents:
        raise LabelledSetStateError(
            f"These rows are already stored as {found.id}, with another declaration.",
            where=in_query("represents"),
            found=represents or "nothing declared",
            expected=found.represents or "nothing declared",
            remedy=f"Use {found.id} unchanged, or delete it and upload the rows again with the right declaration.",
        )
    return found


def _lock(model: str) -> str:
    """Return the name of the lock for changes of a model's sets."""
    return f"labelled sets/{model}"


def _delete(connection: Connection, number: int) -> None:
    connection.execute(delete(labelled_rows).where(labelled_rows.c.set == number))
    connection.execute(delete(labelled_sets).where(labelled_sets.c.number == number))


def _row_type(content: Content | LabelledSet) -> np.dtype[Any]:
    """Return the type of one row's values, little-endian, shape included."""
    return np.dtype((type_of(content.dtype), tuple(content.shape)))
