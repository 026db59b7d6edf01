"""CSV and TSV: UTF-8, a header, then as many cells in each line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from importing.errors import RowsError
from importing.rows.block import Block
from importing.rows.stream import MAX_LINE, lines_of

_BLOCK = 20_000
# In place of what the module `csv` says.
_REASONS: Final = {
    "unexpected end of data": "A quote is opened and not closed.",
    "new-line character seen in unquoted field - do you need to open the file in universal-newline mode?": "The line "
    "contains a carriage return (CR) alone. Save the file with LF or CRLF at the end of each line.",
}
_CELLS = 1_000_000  # of a block at most, some 60 MB


def blocks(
    path: Path,
    file: io.RawIOBase | io.BytesIO,
    check: Callable[[Sequence[str], str], None],
    *,
    names: Sequence[str] = (),
    line: int = 1,
) -> Iterator[Block]:
    """Yield the rows in blocks of str.

    Args:
        path: The file; with `.tsv` in its name cells are separated by tabs, else by commas.
        file: The same file, opened.
        check: Called with the names of the columns and their place; raises RowsError if they cannot be used.
        names: Names of the columns, if the header has been read.
        line: Number of the first line.

    Raises:
        RowsError: The file is not CSV, or a line has more or fewer cells than the header.
    """
    csv.field_size_limit(MAX_LINE)  # of the process; by default cells of 131,072 characters end the reading
    reader = csv.reader(lines_of(path, file, line), delimiter=delimiter_of(path), strict=True)
    start = line - 1
    while True:
        rows: list[list[str]] = []
        try:
            rows.extend(islice(reader, max(1, min(_BLOCK, _CELLS // len(names))) if names else 1))
        except csv.Error as error:
            where = f"{path}, line {line + sum(map(_height, rows))}"
            raise RowsError(_REASONS.get(str(error), f"The line is not valid CSV: {error}."), where=where) from None
        if not rows:
            return
        lines = _lines(rows, line, start + reader.line_num)
        line = start + reader.line_num + 1
        if not names:
            names = [name.strip() for name in rows[0]]
            if names:
                _check_header(names, check, f"{path}, line {lines[0]}")
        elif (block := _block(path, names, rows, lines)) is not None:
            yield block


def _lines(rows: list[list[str]], first: int, last: int) -> NDArray[np.int64]:
    """Return the number of each row's first line, given the first and last line of all."""
    if last - first == len(rows) - 1:
        return np.arange(first, last + 1)
    heights = np.fromiter(map(_height, rows), np.int64, len(rows))
    return first + np.cumsum(heights) - heights


def _height(row: list[str]) -> int:
    """Return the number of lines that a row takes: its cells may contain line ends."""
    return 1 + sum(cell.count("\n") for cell in row)


def _block(path: Path, names: Sequence[str], rows: list[list[str]], lines: NDArray[np.int64]) -> Block | None:
    """Return the rows without blank lines by column; None if all are blank."""
    if not all(rows):
        full = np.fromiter(map(bool, rows), np.bool_, len(rows))
        rows, lines = [row for row in rows if row], lines[full]
    if not set(map(len, rows)) <= {len(names)}:
        place = next(place for place, row in enumerate(rows) if len(row) != len(names))
        raise _ragged(path, int(lines[place]), rows[place], names)
    return Block(dict(zip(names, zip(*rows, strict=True), strict=True)), lines) if rows else None


def delimiter_of(path: Path) -> str:
    """Return what separates the cells of a file, by its ending."""
    return "\t" if ".tsv" in (suffix.lower() for suffix in path.suffixes) else ","


def _check_header(names: list[str], check: Callable[[Sequence[str], str], None], where: str) -> None:
    other = next((mark for mark in (";", "\t", "|") if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        raise RowsError(
            "The header has one column.",
            where=where,
            found=f"{names[0][:100]!r}",
            expected="cells separated by commas (.csv) or tabs (.tsv)",
        )
    check(names, where)


def _ragged(path: Path, line: int, row: list[str], names: Sequence[str]) -> RowsError:
    last = f"the last is {row[-1][:50]!r}"
    return RowsError(
        "The line does not have one cell for each column.",
        where=f"{path}, line {line}",
        found=f"{len(row)} cells; {last}",
        expected=f"{len(names)} cells, as in the header",
        remedy="A cell with a comma needs quotes." if len(row) > len(names) else None,
    )
