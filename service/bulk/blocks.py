"""Parse a part, some rows at a time."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from importing.errors import RowsError
from importing.rows import csv_file
from service.bulk.columns import Values
from service.bulk.inputs import Part
from service.errors import InputError, MalformedBodyError
from service.row_files.lines import NDJSON_TYPE, iterate_lines

_ROWS: Final = 10_000


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a part.

    Attributes:
        rows: Number of rows.
        columns: Values of the columns that are read, by name.
        kept: What the output repeats: an Arrow record batch, objects of NDJSON, or columns by name.
        place: Returns the line or row of one of the rows, as text.
    """

    rows: int
    columns: Mapping[str, Values]
    kept: Any
    place: Callable[[int], str]


def blocks_of(part: Part, read: Collection[str], dropped: Collection[str]) -> Iterator[Block]:
    """Yield the blocks of a part.

    Args:
        part: The part.
        read: Columns that the model, references, groups, segments and amounts need.
        dropped: Columns that the output leaves out.

    Raises:
        InputError: A line is damaged; `where` names it.
    """
    try:
        yield from _PARSERS[part.format](part, read, dropped)
    except RowsError as error:
        line = (error.where or "").rpartition(", ")[2]  # behind a path, which is not always the file's address
        raise MalformedBodyError(
            error.message,
            where=f"{part.file}, {line}",
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error
    except InputError as error:
        if not (error.where or "").startswith(part.file):
            error.place = part.file if error.where is None else f"{part.file}, {error.where}"
        raise


def _csv(part: Part, _: Collection[str], dropped: Collection[str]) -> Iterator[Block]:
    path = Path(part.file)
    if path.suffix.lower() in (".gz", ".bz2"):  # the part is unpacked
        path = path.with_suffix("")
    content = io.BytesIO(part.content)
    for block in csv_file.blocks(path, content, lambda *_: None, names=part.names, line=part.first):
        kept = {name: cells for name, cells in block.columns.items() if name not in dropped}
        yield Block(len(block.lines), block.columns, kept, partial(_line, block.lines))


def _ndjson(part: Part, read: Collection[str], dropped: Collection[str]) -> Iterator[Block]:
    records = iterate_lines(io.BytesIO(part.content), NDJSON_TYPE, first=part.first)
    while taken := list(islice(records, _ROWS)):
        columns = {name: [record.fields.get(name) for record in taken] for name in read}
        kept = [record.fields for record in taken]
        if dropped:
            kept = [{name: cell for name, cell in fields.items() if name not in dropped} for fields in kept]
        yield Block(len(taken), columns, kept, partial(_line, [record.line for record in taken]))


def _parquet(part: Part, read: Collection[str], dropped: Collection[str]) -> Iterator[Block]:
    from arro3.io import read_ipc_stream

    from service.row_files.parquet_rows import column_values

    first = part.first
    for batch in read_ipc_stream(io.BytesIO(part.content)):
        columns = {name: column_values(batch.column(name)) for name in read}
        kept = batch.select([name for name in part.names if name not in dropped]) if dropped else batch
        yield Block(batch.num_rows, columns, kept, partial(_row, first))
        first += batch.num_rows


def _npz(part: Part, _: Collection[str], dropped: Collection[str]) -> Iterator[Block]:
    first = part.first
    for columns in part.content:
        rows = len(next(iter(columns.values())))
        kept = {
            name: cells.tolist() if isinstance(cells, np.ndarray) else cells
            for name, cells in columns.items()
            if name not in dropped and np.ndim(cells) == 1
        }
        yield Block(rows, columns, kept, partial(_row, first))
        first += rows


def _line(lines: Any, row: int) -> str:
    return f"line {lines[row]}"


def _row(first: int, row: int) -> str:
    return f"row {first + row}"


_PARSERS: Final = {"csv": _csv, "ndjson": _ndjson, "parquet": _parquet, "npz": _npz}
