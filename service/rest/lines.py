"""Records of which each stands on a line of its own: NDJSON, and CSV with a header. Errors name line and column."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, BinaryIO, Final

import orjson

from service.errors import InputTypeError, InputValueError, MalformedBodyError

NDJSON_TYPE: Final = "application/x-ndjson"
CSV_TYPE: Final = "text/csv"
_BOM: Final = b"\xef\xbb\xbf"
_LONGEST_LINE: Final = 16 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Record:
    """One record and where it stands.

    Attributes:
        line: Number of its first line, from 1; a CSV's header counts.
        fields: Value by name. Of a CSV they are strings, and a cell that is empty is left out.
        word: What its format calls a field: "column" or "field".
    """

    line: int
    fields: dict[str, Any]
    word: str

    def place(self, name: str | None = None) -> str:
        """Say where the record is, or one field of it.

        >>> Record(3, {"label": "7"}, "column").place("label")
        'line 3, column label'
        """
        return f"line {self.line}" if name is None else f"line {self.line}, {self.word} {name}"


def read_lines(body: bytes, media_type: str, *, columns: Collection[str], at_most: int) -> list[Record]:
    r"""Read one JSON object a line, or the rows of a CSV under their header; lines that are blank are passed over.

    Args:
        body: UTF-8; CSV with cells parted by commas, quoted as RFC 4180 says.
        media_type: `NDJSON_TYPE` or `CSV_TYPE`.
        columns: Columns that a CSV may have. What fields an object may have is left to whoever checks the records.
        at_most: Records that there may be.

    Raises:
        MalformedBodyError: A line is not JSON, or this is no CSV, or a row has another number of cells than the header.
        InputTypeError: A line is JSON, and no object.
        InputValueError: A column is unknown or there twice, there is no record, or there are too many.

    >>> read_lines(b'{"label": "7"}\n', NDJSON_TYPE, columns=["label"], at_most=1)
    [Record(line=1, fields={'label': '7'}, word='field')]
    >>> read_lines(b"label,source\n7,\n", CSV_TYPE, columns=["label", "source"], at_most=1)
    [Record(line=2, fields={'label': '7'}, word='column')]
    """
    found: list[Record] = []
    for record in iterate_lines(io.BytesIO(body), media_type, columns=columns):
        if len(found) == at_most:
            raise InputValueError(
                "There are too many items.",
                where=record.place(),
                found=f"more than {at_most}",
                expected=f"at most {at_most}",
                remedy="Send them in several requests.",
            )
        found.append(record)
    if not found:
        raise InputValueError("There are no items.", where="line 1", found=0, expected="at least 1 item")
    return found


def iterate_lines(stream: BinaryIO, media_type: str, *, columns: Collection[str]) -> Iterator[Record]:
    """Yield the records of a stream, as `read_lines` reads those of a body, without holding more than one of them.

    Args:
        stream: Of UTF-8.
        media_type: `NDJSON_TYPE` or `CSV_TYPE`.
        columns: Columns that a CSV may have.

    Raises:
        MalformedBodyError: As `read_lines`; or a line is longer than `_LONGEST_LINE`.
        InputTypeError: As `read_lines`.
        InputValueError: A column is unknown or there twice.
    """
    return _csv(stream, columns) if media_type == CSV_TYPE else _ndjson(stream)


def header_of(stream: BinaryIO) -> list[str]:
    """Return the names in the first line of a CSV, an empty list where there is none."""
    _, names = next(_rows(stream), (1, []))
    return [name.strip() for name in names]


def _ndjson(stream: BinaryIO) -> Iterator[Record]:
    for number, line in _lines(stream):
        if not line.strip():
            continue
        try:
            fields = orjson.loads(line.rstrip())  # with its end, what lacks there would stand on the next line
        except orjson.JSONDecodeError as error:
            raise MalformedBodyError(
                f"Line {number} is not JSON: {error.msg}.",
                where=f"line {number}, column {error.colno}",
                found=_shown(line),
                expected="a JSON object on a line of its own (NaN and Infinity are not JSON)",
            ) from error
        if not isinstance(fields, dict):
            raise InputTypeError(
                f"Line {number} holds no object.",
                where=f"line {number}",
                found=_shown(line),
                expected="a JSON object on a line of its own",
            )
        yield Record(number, fields, "field")


def _csv(stream: BinaryIO, names: Collection[str]) -> Iterator[Record]:
    rows = _rows(stream)
    number, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    for name in header:
        if name not in names or header.count(name) > 1:
            raise InputValueError(
                "The header names a column that there is not." if name not in names else "A column is there twice.",
                where=f"line {number}, column {name[:100]}",
                found=name[:100],
                expected=sorted(names),
                remedy="The first line names the columns, parted by commas; rename this one, or leave it out.",
            )
    for line, row in rows:
        if len(row) != len(header):
            raise MalformedBodyError(
                f"Line {line} has another number of cells than the header.",
                where=f"line {line}, column {min(len(row), len(header)) + 1}",
                found=f"{len(row)} cells",
                expected=f"{len(header)}: {', '.join(header)}",
                remedy='Put a cell that holds a comma into quotation marks, "…".',
            )
        yield Record(line, {name: cell for name, cell in zip(header, row, strict=True) if cell}, "column")


def _rows(stream: BinaryIO) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield each row with the number of its first line; a quoted cell may go on over several."""
    reader = csv.reader(_texts(stream), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise MalformedBodyError(
                f"Line {number} is not CSV: {error}.", where=f"line {number}", expected="cells parted by commas"
            ) from error
        if row is None:
            return
        if row:
            yield number, row


def _texts(stream: BinaryIO) -> Iterator[str]:
    for number, line in _lines(stream):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise MalformedBodyError(
                f"The table is not UTF-8: {error.reason}.",
                where=f"line {number}, column {len(line[: error.start].decode()) + 1}",
                found=f"byte 0x{line[error.start]:02x}",
                expected="text in UTF-8",
            ) from None
        yield from io.StringIO(text, newline="") if "\r" in text[:-2] else (text,)  # a lone \r ends a line too


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield each line that ends with a newline, its end included, with its number."""
    for number in count(1):
        line = stream.readline(_LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > _LONGEST_LINE:
            raise MalformedBodyError(
                f"Line {number} is too long.",
                where=f"line {number}",
                found=f"more than {_LONGEST_LINE} bytes",
                expected="one record a line",
            )
        yield number, line.removeprefix(_BOM) if number == 1 else line


def _shown(line: bytes) -> str:
    return line[:100].decode(errors="replace").strip()
