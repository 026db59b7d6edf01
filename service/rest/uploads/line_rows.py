"""Rows of a CSV or NDJSON file of labelled rows, some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from bundle import Bundle
from service.errors import InputValueError, MalformedBodyError
from service.rest.lines import CSV_TYPE, Record, header_of, iterate_lines
from service.rest.uploads.layout import Batch, known_columns


def read_line_rows(path: Path, media_type: str, bundle: Bundle, *, rows_per_batch: int) -> Iterator[Batch]:
    """Yield the rows of a file with one of them a line.

    Args:
        path: The file.
        media_type: Of CSV or NDJSON.
        bundle: Says which columns a table may have, and whether its inputs are texts.
        rows_per_batch: How many to take at once.

    Raises:
        InputError: The file, or a row, is not as its media type says.
    """
    table = media_type == CSV_TYPE
    with path.open("rb") as stream:
        names = header_of(stream) if table else []
        stream.seek(0)
        records = iterate_lines(stream, media_type, columns=known_columns(bundle))
        parsed = [name for name in ("logits", "inputs") if name in names]
        if bundle.manifest.input.kind == "tokens" and "inputs" in parsed:
            parsed.remove("inputs")  # a text is no JSON, even where it looks like it
        while taken := list(islice(records, rows_per_batch)):
            names = names or list(taken[0].fields)  # of NDJSON those of the first row, which no other may go beyond
            if not table:
                _check_names(taken, names)
            columns = {name: [record.fields.get(name) for record in taken] for name in names}
            for name in parsed:
                columns[name] = [_parsed(record, name) for record in taken]
            yield Batch(len(taken), columns, _Places(taken))


@dataclass(frozen=True, slots=True)
class _Places:
    records: Sequence[Record]

    def __call__(self, row: int, name: str | None) -> str:
        return self.records[row].place(name)


def _check_names(records: Sequence[Record], columns: Sequence[str]) -> None:
    known = set(columns)
    for record in records:
        if not known.issuperset(record.fields):
            name = next(name for name in record.fields if name not in known)
            raise InputValueError(
                "A row has a field that the first one does not have.",
                where=record.place(name[:100]),
                found=name[:100],
                expected=list(columns),
                remedy="Give every row the same fields, null where there is nothing.",
            )


def _parsed(record: Record, name: str) -> Any:
    """Return what a cell of a CSV holds as JSON: a row of numbers, or a row of a table; other texts as they are."""
    cell = record.fields.get(name)
    if cell is None or cell[0] not in "[{":
        return cell
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError as error:
        raise MalformedBodyError(
            "A cell is no JSON.",
            where=record.place(name),
            found=cell[:100],
            expected='numbers as JSON has them, in quotation marks: "[0.1, -2.5]"',
        ) from error
