"""Read labelled rows of CSV and NDJSON files in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from bundle import Bundle
from service.errors import InputValueError, MalformedBodyError
from service.row_files.layout import Batch, known_columns
from service.row_files.lines import CSV_TYPE, Record, header_of, iterate_lines

_PARSED: Final = ("logits", "probabilities", "inputs")


def read_line_rows(path: Path, media_type: str, bundle: Bundle, *, rows_per_batch: int) -> Iterator[Batch]:
    """Yield the rows of a file in batches.

    Args:
        path: The file.
        media_type: CSV or NDJSON.
        bundle: Bundle of the model, which determines the allowed columns and the meaning of texts.
        rows_per_batch: Rows per batch.

    Raises:
        InputError: The file or a row does not match the media type.
    """
    table = media_type == CSV_TYPE
    with path.open("rb") as stream:
        names = header_of(stream) if table else []
        stream.seek(0)
        records = iterate_lines(stream, media_type, columns=known_columns(bundle))
        tensors = () if bundle.columns else bundle.manifest.input.tensors
        parsed = [name for name in (*_PARSED, *(tensor.name for tensor in tensors)) if name in names]
        numbers = {tensor.name for tensor in tensors if tensor.dtype != "string"}
        if (bundle.manifest.input.kind == "tokens" or bundle.tokenizer) and "inputs" in parsed:
            parsed.remove("inputs")  # a text is not JSON, even if it looks like it
        while taken := list(islice(records, rows_per_batch)):
            names = names or list(taken[0].fields)  # NDJSON: the fields of the first row, and no others
            if not table:
                _check_names(taken, names)
            columns = {name: [record.fields.get(name) for record in taken] for name in names}
            for name in parsed:
                columns[name] = [_parsed(record, name, whole=name in numbers) for record in taken]
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
                "A row has a field that the first row lacks.",
                where=record.place(name[:100]),
                found=name[:100],
                expected=list(columns),
                remedy="Give every row the same fields, with null for missing values.",
            )


def _parsed(record: Record, name: str, *, whole: bool) -> Any:
    """Parse a CSV cell with JSON (a row of numbers or of a table, or any if `whole`). Return other texts unchanged."""
    cell = record.fields.get(name)
    if cell is None or not (whole or cell[0] in "[{"):
        return cell
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError as error:
        raise MalformedBodyError(
            "A cell is not valid JSON.",
            where=record.place(name),
            found=cell[:100],
            expected='numbers as JSON has them, in quotation marks: "[0.1, -2.5]"',
        ) from error
