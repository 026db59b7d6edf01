"""Records of which each stands on a line of its own: NDJSON, and CSV with a header. Errors name line and column."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from service.errors import InputTypeError, InputValueError, MalformedBodyError

NDJSON_TYPE: Final = "application/x-ndjson"
CSV_TYPE: Final = "text/csv"
_BOM: Final = b"\xef\xbb\xbf"


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
    for record in _csv(body, columns) if media_type == CSV_TYPE else _ndjson(body):
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


def _ndjson(body: bytes) -> Iterator[Record]:
    for number, line in enumerate(io.BytesIO(body.removeprefix(_BOM)), start=1):
        if line.isspace():
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


def _csv(body: bytes, names: Collection[str]) -> Iterator[Record]:
    rows = _rows(_text(body))
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


def _rows(text: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield each row with the number of its first line; a quoted cell may go on over several."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
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


def _text(body: bytes) -> str:
    try:
        return body.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        *before, line = error.object[: error.start].split(b"\n")
        raise MalformedBodyError(
            f"The table is not UTF-8: {error.reason}.",
            where=f"line {len(before) + 1}, column {len(line.decode()) + 1}",
            found=f"byte 0x{error.object[error.start]:02x}",
            expected="text in UTF-8",
        ) from None


def _shown(line: bytes) -> str:
    return line[:100].decode(errors="replace").strip()
