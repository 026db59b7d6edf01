"""Read records from lines: NDJSON, and CSV with a header. Errors name line and column."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, BinaryIO, Final

import orjson

from candor.contract.documents import each_name_once
from service.errors import InputTypeError, InputValueError, MalformedBodyError

NDJSON_TYPE: Final = "application/x-ndjson"
CSV_TYPE: Final = "text/csv"
_BOM: Final = b"\xef\xbb\xbf"
LONGEST_LINE: Final = 16 << 20
"""Maximum bytes of a line."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its place.

    Attributes:
        line: Number of its first line, from 1; the header of a CSV counts.
        fields: Values by name. Values of a CSV are strings, without empty cells.
        word: Term of the format for a field: "column" or "field".
    """

    line: int
    fields: dict[str, Any]
    word: str

    def place(self, name: str | None = None) -> str:
        """Return the place of the record, or of one field, as text.

        >>> Record(3, {"label": "7"}, "column").place("label")
        'line 3, column label'
        """
        return f"line {self.line}" if name is None else f"line {self.line}, {self.word} {name}"


def read_lines(body: bytes, media_type: str, *, columns: Collection[str], at_most: int) -> list[Record]:
    r"""Read one JSON object per line, or the rows of a CSV with a header. Skip blank lines.

    Args:
        body: UTF-8; CSV as in RFC 4180.
        media_type: `NDJSON_TYPE` or `CSV_TYPE`.
        columns: Allowed columns of a CSV. Fields of JSON objects are not checked.
        at_most: Maximum number of records.

    Raises:
        MalformedBodyError: A line is not valid JSON or CSV, or a row does not have as many cells as the header.
        InputTypeError: A line is not a JSON object.
        InputValueError: A column is unknown or duplicate, or the body has no records or too many.

    >>> read_lines(b'{"label": "7"}\n', NDJSON_TYPE, columns=["label"], at_most=1)
    [Record(line=1, fields={'label': '7'}, word='field')]
    >>> read_lines(b"label,source\n7,\n", CSV_TYPE, columns=["label", "source"], at_most=1)
    [Record(line=2, fields={'label': '7'}, word='column')]
    """
    found: list[Record] = []
    for record in iterate_lines(io.BytesIO(body), media_type, columns=columns):
        if len(found) == at_most:
            raise InputValueError(
                "The request has too many items.",
                where=record.place(),
                found=f"more than {at_most}",
                expected=f"at most {at_most}",
                remedy="Split them into several requests.",
            )
        found.append(record)
    if not found:
        raise InputValueError("The request has no items.", where="line 1", found=0, expected="at least 1 item")
    return found


def iterate_lines(
    stream: BinaryIO, media_type: str, *, columns: Collection[str] = (), first: int = 1
) -> Iterator[Record]:
    """Yield the records of a stream as `read_lines` does, one at a time.

    Args:
        stream: UTF-8.
        media_type: `NDJSON_TYPE` or `CSV_TYPE`.
        columns: Allowed columns of a CSV.
        first: Number of the first line of NDJSON.

    Raises:
        MalformedBodyError: As `read_lines`; or a line is longer than `LONGEST_LINE`.
        InputTypeError: As `read_lines`.
        InputValueError: A column is unknown or duplicate.
    """
    return _csv(stream, columns) if media_type == CSV_TYPE else _ndjson(stream, first)


def header_of(stream: BinaryIO) -> list[str]:
    """Return the names in the first line of a CSV, empty without a line."""
    _, names = next(_rows(stream), (1, []))
    return [name.strip() for name in names]


def _ndjson(stream: BinaryIO, first: int) -> Iterator[Record]:
    for number, line in _lines(stream, first):
        if not line.strip():
            continue
        try:
            fields = orjson.loads(line.rstrip())  # with its newline, an error at the end would be on the next line
            # If there are as many colons as names, each name is there once. Python's parser takes five times as long.
            if isinstance(fields, dict) and line.count(b":") != len(fields):
                json.loads(line, object_pairs_hook=each_name_once)
        except (ValueError, RecursionError) as error:
            column = f", column {error.colno}" if isinstance(error, orjson.JSONDecodeError) else ""
            raise MalformedBodyError(
                f"Line {number} is not valid JSON: {getattr(error, 'msg', error)}.",
                where=f"line {number}{column}",
                found=_shown(line),
                expected="one JSON object per line (NaN and Infinity are not JSON)",
            ) from error
        if not isinstance(fields, dict):
            raise InputTypeError(
                f"Line {number} is not a JSON object.",
                where=f"line {number}",
                found=_shown(line),
                expected="one JSON object per line",
            )
        yield Record(number, fields, "field")


def _csv(stream: BinaryIO, names: Collection[str]) -> Iterator[Record]:
    rows = _rows(stream)
    number, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    for name in header:
        if name not in names or header.count(name) > 1:
            raise InputValueError(
                "Unknown column in the header." if name not in names else "Duplicate column in the header.",
                where=f"line {number}, column {name[:100]}",
                found=name[:100],
                expected=sorted(names),
                remedy="The first line names the columns, separated by commas. Rename or remove this column.",
            )
    for line, row in rows:
        if len(row) != len(header):
            raise MalformedBodyError(
                f"Line {line} does not have as many cells as the header.",
                where=f"line {line}, column {min(len(row), len(header)) + 1}",
                found=f"cells: {len(row)}",
                expected=f"cells: {len(header)} ({', '.join(header)})",
                remedy='Put a cell that contains a comma in quotation marks, "…".',
            )
        yield Record(line, {name: cell for name, cell in zip(header, row, strict=True) if cell}, "column")


def _rows(stream: BinaryIO) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield each row with the number of its first line. A quoted cell may span several lines."""
    csv.field_size_limit(LONGEST_LINE)  # of the process; by default cells of 131,072 characters end the reading
    reader = csv.reader(_texts(stream), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise MalformedBodyError(
                f"Line {number} is not valid CSV: {error}.",
                where=f"line {number}",
                expected="cells separated by commas",
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


def _lines(stream: BinaryIO, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its newline, and its number."""
    for number in count(first):
        line = stream.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            raise MalformedBodyError(
                f"Line {number} is too long.",
                where=f"line {number}",
                found=f"more than {LONGEST_LINE} bytes",
                expected="one record per line",
            )
        yield number, line.removeprefix(_BOM) if number == 1 else line


def _shown(line: bytes) -> str:
    return line[:100].decode(errors="replace").strip()
