"""Read the rows of a CSV, NDJSON, Parquet or npz file, one at a time."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from candor.payloads import LABELLED_TYPES
from service.errors import InputShapeError
from service.row_files.lines import CSV_TYPE, NDJSON_TYPE, header_of, iterate_lines

if TYPE_CHECKING:
    from service.row_files.layout import Batch, Column

Kind = Literal["bool", "int", "float", "text"]

_KINDS: Final[Mapping[type, Kind]] = {bool: "bool", int: "int", float: "float"}
_INT64: Final = range(-(2**63), 2**63)
_CELLS: Final = (str, bool, int, float, list, dict, type(None))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file.

    Attributes:
        place: Its line or number, as text.
        values: Values by column. An empty cell of a CSV is absent; NaN is None.
    """

    place: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a file contains, found by reading all of it.

    Attributes:
        rows: Number of rows, at least 1.
        columns: Kind of each column, in order.
        digest: SHA-256 of the file.
    """

    rows: int
    columns: Mapping[str, Kind]
    digest: str

    @classmethod
    def of(cls, path: Path) -> Survey:
        """Read a file to its end.

        Raises:
            InputError: The file is damaged, or has no rows.
        """
        rows = 0
        kinds: dict[str, Kind | None] = dict.fromkeys(_header(path))
        for row in read_rows(path):
            rows += 1
            for name, value in row.values.items():
                kinds[name] = _merged(kinds.get(name), value)
        if not rows:
            raise InputShapeError(f"{path} has no rows.", where=str(path), found=0, expected="at least 1 row")
        return cls(rows, {name: kind or "text" for name, kind in kinds.items()}, digest(path))


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_rows(path: Path) -> Generator[Row, None, None]:
    """Yield the rows of a table.

    Raises:
        InputError: The file or a row is damaged; `where` names the line.
        UnsupportedMediaTypeError: It is a Parquet file, and the extra `parquet` is not installed.
    """
    media_type = LABELLED_TYPES[path.suffix.lower()]
    if media_type in (CSV_TYPE, NDJSON_TYPE):
        return _of_lines(path, media_type)
    from service.row_files.npz_rows import read_npz
    from service.row_files.parquet_opening import check_opening
    from service.row_files.parquet_rows import PARQUET_TYPE, check_installed, read_parquet_rows

    if media_type == PARQUET_TYPE:
        check_installed()
        check_opening([path])
        return _of_batches(read_parquet_rows(path))
    return _of_batches(read_npz(path, limit=sys.maxsize))


def _of_lines(path: Path, media_type: str) -> Generator[Row, None, None]:
    with path.open("rb") as stream:
        columns = header_of(stream) if media_type == CSV_TYPE else ()
        stream.seek(0)
        for record in iterate_lines(stream, media_type, columns=columns):
            yield Row(record.place(), record.fields)


def _of_batches(batches: Iterable[Batch]) -> Generator[Row, None, None]:
    for batch in batches:
        columns = [_cells(column) for column in batch.columns.values()]
        for number, values in enumerate(zip(*columns, strict=True)):
            yield Row(batch.place(number, None), dict(zip(batch.columns, values, strict=True)))


def _header(path: Path) -> list[str]:
    if LABELLED_TYPES[path.suffix.lower()] != CSV_TYPE:
        return []
    with path.open("rb") as stream:
        return header_of(stream)


def _cells(column: Column) -> list[Any]:
    """Return values as JSON has them; rows of numbers stay arrays."""
    if isinstance(column, list):
        return [_cell(value) for value in column]
    if column.dtype.kind == "M":
        return [None if text == "NaT" else text for text in np.datetime_as_string(column, timezone="UTC").tolist()]
    if column.ndim > 1:
        return list(column)
    return [_cell(value) for value in column.tolist()] if column.dtype.kind == "f" else list(column.tolist())


def _cell(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if isinstance(value, _CELLS) else str(value)


def _merged(kind: Kind | None, value: Any) -> Kind | None:
    """Return the kind of a column after one more value."""
    if value is None or kind == "text":
        return kind
    found: Kind = "text" if type(value) is int and value not in _INT64 else _KINDS.get(type(value), "text")
    if kind in (None, found):
        return found
    return "float" if {kind, found} == {"int", "float"} else "text"
