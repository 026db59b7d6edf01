"""The folder of the output: parts under temporary names until they are whole, in one of three formats."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, Literal, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from bundle import RemoteError
from bundle.remote import file_system
from service.bulk.inputs import is_url
from service.errors import ConfigurationError

Written = Literal["csv", "ndjson", "parquet"]
Added = Mapping[str, Any]
"""Columns to add: lists of texts or None, arrays float32 (N,), and `Coded`."""

_UNFINISHED: Final = ".unfinished-"
_BUFFER: Final = 1 << 20  # Parquet comes in pieces of 8 kB


@dataclass(frozen=True)
class Coded:
    """A column of few different texts.

    Attributes:
        texts: The texts.
        codes: Index of each row's text, int64 (N,).
    """

    texts: Sequence[str]
    codes: NDArray[np.int64]

    def cells(self) -> list[str]:
        """Return the text of each row."""
        return [self.texts[code] for code in self.codes.tolist()]


class Place(Protocol):
    """Where the output goes."""

    def names(self) -> list[str]:
        """Return the names of the files, without unfinished parts."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None without it."""

    def remove(self, name: str) -> None:
        """Delete a file."""

    def new(self, name: str) -> Any:
        """Return a context manager that gives a binary file, which gets its name at the end, or is deleted."""

    def locked(self) -> Any:
        """Return a context manager in which no other process of this machine writes here."""


@dataclass(frozen=True)
class Folder:
    """A local folder; made if it is missing."""

    path: Path

    def names(self) -> list[str]:
        """Return the names of the files, without unfinished parts."""
        return sorted(each.name for each in self.path.iterdir() if not each.name.startswith(_UNFINISHED))

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None without it."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Delete a file."""
        with self._refused():
            (self.path / name).unlink()

    @contextmanager
    def new(self, name: str) -> Iterator[IO[bytes]]:
        """Give a file under a temporary name, written to disk and renamed at the end."""
        with self._refused():
            # Of this process: one whose run was killed may still write the same part.
            unfinished = self.path / f"{_UNFINISHED}{os.getpid()}-{name}"
            try:
                with unfinished.open("wb", _BUFFER) as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(self.path / name)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and lock it; remove unfinished parts before and after."""
        with self._refused():
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(f"Another process is writing {self.path}.", where=str(self.path)) from None
            self._clean()
            try:
                yield
            finally:
                self._clean()
        finally:
            os.close(descriptor)

    def _clean(self) -> None:
        for left in self.path.glob(f"{_UNFINISHED}*"):
            left.unlink(missing_ok=True)

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be written: {error.strerror}.", where=str(self.path)
            ) from error


@dataclass(frozen=True)
class Remote:
    """A folder by URL. A file is written to this machine first: stores show an upload whole or not at all."""

    url: str

    def names(self) -> list[str]:
        """Return the names of the files."""
        with self._refused() as (files, path):
            if not files.exists(path):
                return []
            return sorted(each.rstrip("/").rpartition("/")[2] for each in files.ls(path, detail=False))

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None without it."""
        with self._refused() as (files, path), suppress(FileNotFoundError):
            found: bytes = files.cat_file(f"{path}/{name}")
            return found
        return None

    def remove(self, name: str) -> None:
        """Delete a file."""
        with self._refused() as (files, path):
            files.rm_file(f"{path}/{name}")

    @contextmanager
    def new(self, name: str) -> Iterator[IO[bytes]]:
        """Give a local file and upload it at the end."""
        with tempfile.TemporaryDirectory(prefix="candor-score-") as folder:
            part = Path(folder) / name
            with part.open("wb") as file:
                yield file
            with self._refused() as (files, path):
                files.makedirs(path, exist_ok=True)
                files.put_file(str(part), f"{path}/{name}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: stores have no locks."""
        yield

    @contextmanager
    def _refused(self) -> Iterator[tuple[Any, str]]:
        try:
            files, path = file_system(self.url)
            files.invalidate_cache()
            yield files, path.rstrip("/")
        except RemoteError as error:
            raise ConfigurationError(f"{self.url} cannot be used: {error}", where=self.url) from error
        except FileNotFoundError:
            raise
        except Exception as error:  # each file system has exceptions of its own
            raise ConfigurationError(f"{self.url} cannot be used: {error}", where=self.url) from error


def place_of(address: str) -> Place:
    """Return where an output goes, by its path or URL."""
    return Remote(address) if is_url(address) else Folder(Path(address))


def write(
    format_: Written, file: IO[bytes], names: Sequence[str], blocks: Iterable[tuple[Any, Added]], schema: Any
) -> None:
    """Write the rows of a part.

    Args:
        format_: Format to write.
        file: The opened file.
        names: Columns of the input that are kept; ignored for NDJSON.
        blocks: What is kept of each block, and the columns to add.
        schema: Arrow schema of what is kept; None unless it is Arrow.
    """
    _WRITERS[format_](file, names, blocks, schema)


def _csv(file: IO[bytes], names: Sequence[str], blocks: Iterable[tuple[Any, Added]], _: Any) -> None:
    out = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=False)
    writer = csv.writer(out, lineterminator="\n")
    header = False
    for kept, added in blocks:
        if not header:
            writer.writerow([*names, *added])
            header = True
        texts = [_texts(cells) for cells in (*_columns(kept).values(), *added.values())]
        writer.writerows(zip(*texts, strict=True))
    out.detach()  # flushed; the file stays open


def _ndjson(file: IO[bytes], _: Sequence[str], blocks: Iterable[tuple[Any, Added]], __: Any) -> None:
    for kept, added in blocks:
        columns = (column.cells() if isinstance(column, Coded) else column for column in added.values())
        cells = list(zip(*(orjson.loads(_json(column)) for column in columns), strict=True))
        records = kept if isinstance(kept, list) else _records(_columns(kept), len(cells))
        for record, values in zip(records, cells, strict=True):
            file.write(orjson.dumps({**record, **dict(zip(added, values, strict=True))}, default=str) + b"\n")


def _parquet(file: IO[bytes], names: Sequence[str], blocks: Iterable[tuple[Any, Added]], schema: Any) -> None:
    from arro3.core import Array, DataType, Field, RecordBatch, RecordBatchReader, Schema
    from arro3.io import write_parquet

    following = iter(blocks)
    first = next(following)
    types = {True: DataType.float32(), False: DataType.string()}
    kept = [Field(name, DataType.string()) for name in names] if schema is None else [schema.field(n) for n in names]
    fields = [*kept, *(Field(name, types[isinstance(cells, np.ndarray)]) for name, cells in first[1].items())]
    whole = Schema(fields)

    def array(cells: Any) -> Any:
        if isinstance(cells, Coded):
            return Array(cells.texts, type=DataType.string()).take(Array.from_numpy(cells.codes))
        return Array.from_numpy(cells) if isinstance(cells, np.ndarray) else Array(cells, type=DataType.string())

    def batches() -> Iterator[Any]:
        for found, added in chain([first], following):
            if schema is None:
                old = [array([None if cell is None else str(cell) for cell in cells]) for cells in found.values()]
            else:
                old = [found.column(name) for name in names]
            yield RecordBatch.from_arrays([*old, *map(array, added.values())], schema=whole)

    reader = RecordBatchReader.from_batches(whole, batches())
    # Numbers seldom repeat: to look for those that do would cost as much as a small model.
    plain = {field.name: False for field in fields if DataType.is_floating(field.type)}
    write_parquet(reader, file, compression="snappy", column_dictionary_enabled=plain)


_WRITERS: Final[Mapping[Written, Callable[..., None]]] = {"csv": _csv, "ndjson": _ndjson, "parquet": _parquet}


def rows_as_json(kept: Any, rows: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield some rows of what is kept, as objects."""
    taken = taking(kept, rows)
    yield from taken if isinstance(taken, list) else _records(_columns(taken), len(rows))


def taking(kept: Any, rows: Sequence[int]) -> Any:
    """Return some rows of what is kept of a block."""
    if isinstance(kept, list):
        return [kept[row] for row in rows]
    if isinstance(kept, dict):
        return {name: [cells[row] for row in rows] for name, cells in kept.items()}
    from arro3.core import Array

    return kept.take(Array.from_numpy(np.asarray(rows, np.int64)))


def _columns(kept: Any) -> dict[str, Any]:
    if isinstance(kept, dict):
        return kept
    return {name: kept.column(name).to_pylist() for name in kept.schema.names}


def _records(columns: Mapping[str, Sequence[Any]], rows: int) -> Iterator[dict[str, Any]]:
    for row in range(rows):  # of an npz of inputs alone, no column is kept
        yield {name: cells[row] for name, cells in columns.items()}


def _json(column: Any) -> bytes:
    return orjson.dumps(column, option=orjson.OPT_SERIALIZE_NUMPY)


def _texts(cells: Any) -> Sequence[Any]:
    """Return cells of a CSV: numbers as the shortest text that gives the same float32."""
    if isinstance(cells, Coded):
        return cells.cells()
    if isinstance(cells, np.ndarray):
        return _json(cells).decode()[1:-1].split(",") if len(cells) else []
    return ["" if cell is None else cell if isinstance(cell, str | int | float) else str(cell) for cell in cells]
