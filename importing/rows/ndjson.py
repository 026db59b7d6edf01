"""NDJSON: UTF-8, one JSON object a line; absent fields are missing values."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from importing.errors import RowsError
from importing.rows.block import Block, Values
from importing.rows.stream import lines_of

_BLOCK = 20_000
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def blocks(path: Path, file: io.RawIOBase, check: Callable[[Sequence[str], str], None]) -> Iterator[Block]:
    """Yield the rows in blocks of str, numbers, bool and None.

    A column must occur in the first block (20,000 lines) to have a role.

    Args:
        path: The file.
        file: The same file, opened.
        check: Called with the names of the first block; raises RowsError if they cannot be used.

    Raises:
        RowsError: A line is not an object of plain values.
    """
    lines = enumerate(lines_of(path, file), start=1)
    names: dict[str, None] = {}
    while taken := list(islice(lines, _BLOCK)):
        numbered = [(number, _row(path, number, line)) for number, line in taken if not line.isspace()]
        if not numbered:
            continue
        numbers, rows = zip(*numbered, strict=True)
        first = not names
        for row in rows:
            if not names.keys() >= row.keys():
                names |= dict.fromkeys(row)
        if first:
            check(tuple(names), str(path))
        columns = _columns(rows, tuple(names))
        for name, values in columns.items():
            if not _PLAIN.issuperset(map(type, values)):
                place = next(place for place, value in enumerate(values) if type(value) not in _PLAIN)
                raise _nested(f"{path}, line {numbers[place]}, column {name}", values[place])
        yield Block(columns, np.array(numbers, np.int64))


def _columns(rows: tuple[dict[str, Any], ...], names: tuple[str, ...]) -> dict[str, Values]:
    if set(map(tuple, rows)) == {names}:
        return dict(zip(names, zip(*map(dict.values, rows), strict=True), strict=True))
    return {name: [row.get(name) for row in rows] for name in names}


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    where = f"{path}, line {number}"
    try:
        row = _DECODER.decode(line)
        if "\\u" in line:
            json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise RowsError("The text has half of a surrogate pair.", where=where, found=half) from None
    except (ValueError, RecursionError) as error:
        raise RowsError(f"The line is not valid JSON: {error}.", where=where) from None
    if not isinstance(row, dict):
        raise RowsError("The line is not a JSON object.", where=where, found=line.strip()[:100])
    return row


def _nested(where: str, value: Any) -> RowsError:
    return RowsError(
        "The value is not a text, number, true, false or null.",
        where=where,
        found=json.dumps(value)[:100],
        remedy="Rows with tensors belong into an .npz file.",
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is there twice")
    return fields


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER: Final = json.JSONDecoder(parse_constant=_constant, object_pairs_hook=_object)
