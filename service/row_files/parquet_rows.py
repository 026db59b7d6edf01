"""Read rows of Parquet files in batches, with arro3 (extra `parquet`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from bundle.muted import muted
from service.errors import MalformedBodyError, UnsupportedMediaTypeError
from service.row_files.layout import Batch, Column

PARQUET_TYPE = "application/vnd.apache.parquet"
_PANIC = re.compile(r'called `Result::unwrap\(\)` on an `Err` value: \w+\("(.*)"\)', re.DOTALL)


def check_installed() -> None:
    """Raise UnsupportedMediaTypeError if the extra `parquet` is not installed."""
    if find_spec("arro3") is None or find_spec("arro3.io") is None:
        raise UnsupportedMediaTypeError(
            "Parquet requires the extra `parquet`.",
            found=PARQUET_TYPE,
            expected="arro3",
            remedy="Use npz, CSV or NDJSON; or in a checkout of Candor, run: python requirements/install.py parquet",
        )


def read_parquet_rows(path: Path) -> Iterator[Batch]:
    """Yield the rows of a Parquet file.

    Args:
        path: The file.

    Raises:
        MalformedBodyError: The file is damaged or not a Parquet file.
    """
    with path.open("rb") as stream:
        _, batches = open_parquet(stream)
        first = 0
        for batch in batches:
            columns = {name: column_values(batch.column(name)) for name in batch.schema.names}
            yield Batch(batch.num_rows, columns, _Places(first))
            first += batch.num_rows


def open_parquet(stream: IO[bytes], *, batch_size: int | None = None) -> tuple[Any, Iterator[Any]]:
    """Return the Arrow schema of a Parquet file and its record batches.

    Args:
        stream: The opened file.
        batch_size: Maximum rows per batch; None for the reader's default.

    Raises:
        MalformedBodyError: The file is damaged or not a Parquet file; also while batches are read.
    """
    from arro3.io import read_parquet

    reader = _attempted(lambda: read_parquet(stream, batch_size=batch_size))
    names = list(reader.schema.names)
    if len(set(names)) != len(names):
        raise MalformedBodyError("Columns of the file share a name.", found=names[:20], expected="distinct names")
    return reader.schema, _batches(reader)


def _batches(reader: Any) -> Iterator[Any]:
    while (batch := _attempted(lambda: next(reader, None))) is not None:
        yield batch


def _attempted(read: Callable[[], Any]) -> Any:
    """Call the reader of the file. Its errors become MalformedBodyError."""
    try:
        with muted():  # a panic is printed before it is raised
            return read()
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        said = _PANIC.sub(r"\1", str(error))[:300].rstrip(".")
        raise MalformedBodyError(f"The file is not a valid Parquet file: {said}.", expected="a Parquet file") from error


@dataclass(frozen=True, slots=True)
class _Places:
    first: int

    def __call__(self, row: int, name: str | None) -> str:
        return f"row {self.first + row + 1}" + ("" if name is None else f", column {name}")


def column_values(column: Any) -> Column:
    """Return a column of times, numbers or equal lists of numbers, without nulls, as an array; else as a list."""
    from arro3.core import DataType

    kind = column.type
    if DataType.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    try:
        if DataType.is_timestamp(kind) or DataType.is_date(kind):
            microseconds = column.cast(DataType.timestamp("us", tz="UTC")).cast(DataType.int64()).to_pylist()
            return np.array(["NaT" if time is None else time for time in microseconds], dtype="<M8[us]")
        if not column.null_count and (DataType.is_numeric(kind) or DataType.is_nested(kind)):
            return _array(column)
    except (NotImplementedError, ValueError, TypeError):
        pass  # the reader of the column names the faulty value
    values: list[Any] = column.to_pylist()
    return values


def _array(column: Any) -> npt.NDArray[Any]:
    """Return numbers (n,), or equally long lists of numbers (n, …). Nulls and unequal lengths raise ValueError."""
    from arro3.core import DataType, list_flatten

    shape = [len(column)]
    while DataType.is_nested(column.type):
        if column.null_count:
            raise ValueError("a list is missing")
        rows, column = column, list_flatten(column)
        size, rest = divmod(len(column), max(len(rows), 1))
        if rest or not (DataType.is_fixed_size_list(rows.type) or _even(rows, size)):
            raise ValueError("lists differ in length")
        shape.append(size)
    return np.asarray(column.to_numpy()).reshape(shape)


def _even(rows: Any, size: int) -> bool:
    from arro3.core import list_offsets

    return bool((np.diff(np.asarray(list_offsets(rows).to_numpy())) == size).all())
