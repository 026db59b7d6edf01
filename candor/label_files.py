"""Files of true labels: read them as feedback, and name the line of a refused label."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from candor.contract.documents import each_name_once
from candor.contract.feedback import FeedbackEntry, FeedbackReceipt
from candor.errors import ApiError

FIELDS: Final = tuple(FeedbackEntry.model_fields)
"""Fields of a label; the service checks them."""

_COUNTS: Final = ("stored", "pending", "duplicates", "conflicts")


@dataclass(frozen=True, slots=True)
class Label:
    """One row of a file.

    Attributes:
        line: Number of its first line, from 1; a CSV's header counts.
        fields: Values by name; in a CSV, texts without the empty ones.
    """

    line: int
    fields: dict[str, Any]


def read_labels(path: Path) -> list[Label]:
    """Read a file of labels by its ending.

    Args:
        path: `.csv` with a header of some of `FIELDS`, or `.ndjson` or `.jsonl` with one object a line; in UTF-8.

    Returns:
        At least one label.

    Raises:
        ValueError: The file has another ending, or a line is not a valid label.
        OSError: The file cannot be read.
    """
    readers = {".csv": _csv, ".ndjson": _ndjson, ".jsonl": _ndjson}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: expected a file of labels ending in one of {', '.join(readers)}")
    body = path.read_bytes()
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(path, body.count(b"\n", 0, error.start) + 1, "it is not UTF-8")
    labels = list(reader(path, text))
    if not labels:
        _refuse(path, 1, "the file has no labels")
    return labels


@contextmanager
def named_by_line(path: Path, labels: Sequence[Label]) -> Iterator[None]:
    """Make a refusal of a sent item name the line of the file.

    Args:
        path: The file.
        labels: The labels sent, in order.
    """
    try:
        yield
    except ApiError as error:
        match error.path:
            case ("items", index, *field) if index.isdecimal():
                place = f"{path}, line {labels[int(index)].line}"
            case _:
                raise
        if field:
            place += f", {'column' if path.suffix.lower() == '.csv' else 'field'} {field[0]}"
        raise type(error)(error.status, {**error.problem, "where": place}, retry_after_s=error.retry_after_s) from error


def joined(receipts: Sequence[FeedbackReceipt]) -> FeedbackReceipt:
    """Combine the receipts of a file's parts into one."""
    counts = {name: sum(getattr(receipt, name) for receipt in receipts) for name in _COUNTS}
    return FeedbackReceipt(**counts, items=tuple(item for receipt in receipts for item in receipt.items))


def _csv(path: Path, text: str) -> Iterator[Label]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            _refuse(path, line, f"it is not CSV: {error}")
        if row is None:
            return
        if not row:
            continue
        if header is None:
            header = _header(path, line, row)
        elif len(row) != len(header):
            _refuse(path, line, f"found {len(row)} cells, expected {len(header)}: {', '.join(header)}")
        else:
            yield Label(line, {name: cell for name, cell in zip(header, row, strict=True) if cell})


def _header(path: Path, line: int, row: list[str]) -> list[str]:
    header = [name.strip() for name in row]
    for name in header:
        if name not in FIELDS or header.count(name) > 1:
            _refuse(path, line, f"found column {name[:100]!r}, expected some of {', '.join(FIELDS)}, each once")
    return header


def _ndjson(path: Path, text: str) -> Iterator[Label]:
    for line, row in enumerate(text.split("\n"), start=1):
        if not row.strip():
            continue
        try:
            fields = json.loads(row, object_pairs_hook=each_name_once, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            _refuse(path, line, f"it is not JSON: {error}")
        if not isinstance(fields, dict):
            _refuse(path, line, f"found {row.strip()[:100]}, expected a JSON object")
        yield Label(line, fields)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _refuse(path: Path, line: int, why: str) -> NoReturn:
    raise ValueError(f"{path}, line {line}: {why}")
