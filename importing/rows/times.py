"""Times of rows: ISO 8601 or seconds or milliseconds since the epoch, as int64 microseconds (UTC)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bundle.table import is_missing
from importing.errors import RowsError
from importing.rows.block import Values
from importing.rows.values import Where, numbers, spellings

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DATES = 19000101, 21001231
_MAX_SECONDS = 1e11
_MAX_MILLISECONDS = 1e14
_EXPECTED = "ISO 8601, such as 2026-03-14T09:26:53Z, or seconds or milliseconds since 1970"


class Times:
    """A column of times, int64 (N,).

    Numbers are seconds if all are below 10¹¹, else milliseconds; numbers of eight digits that are dates (20260314) are
    dates. A time without an offset is UTC.

    Args:
        spelled: Whether numbers are written as text.
    """

    def __init__(self, *, spelled: bool) -> None:
        self._spelled = spelled
        self._chunks: list[NDArray[Any]] = []

    def add(self, values: Values, where: Where) -> None:
        """Add a block of cells; raises RowsError."""
        chunk = self._parsed(values, where)
        if self._chunks and chunk.dtype != self._chunks[0].dtype:
            _refuse(values, 0, where, "The time is written in another way than those above.")
        self._chunks.append(chunk)

    def finish(self) -> NDArray[np.int64]:
        """Return the column."""
        times = np.concatenate(self._chunks)
        if times.dtype == np.int64:
            return times
        scale = 1_000_000 if np.abs(times).max() < _MAX_SECONDS else 1_000
        microseconds: NDArray[np.int64] = np.rint(times * scale).astype(np.int64)
        return microseconds

    def _parsed(self, values: Values, where: Where) -> NDArray[Any]:
        """Return microseconds as int64, or the numbers since the epoch as float64."""
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            if np.isnat(values).any():
                _refuse(values, int(np.isnat(values).argmax()), where, "The time is missing.")
            return values.astype("<M8[us]").view(np.int64)
        found = numbers(values, spelled=self._spelled)
        if found is not None and not np.isnan(found).any():
            dates = _dates(found)
            if dates is not None:
                return dates
            far = ~(np.abs(found) < _MAX_MILLISECONDS)
            if far.any():
                _refuse(values, int(far.argmax()), where, "The time is out of range.")
            return found
        return np.array([_iso(cell, values, row, where) for row, cell in enumerate(spellings(values))], np.int64)


def _dates(numbers: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return numbers such as 20260314 as dates; None unless all are."""
    if not ((numbers >= _DATES[0]) & (numbers <= _DATES[1])).all():
        return None
    try:
        return np.array([_microseconds(str(int(number))) for number in numbers], np.int64)
    except ValueError:
        return None


def _microseconds(text: str) -> int:
    time = datetime.fromisoformat(text)
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _iso(cell: str | None, values: Values, row: int, where: Where) -> int:
    if cell is None or is_missing(cell):
        _refuse(values, row, where, "The time is missing.")
    try:
        return _microseconds(cell.strip())
    except (ValueError, OverflowError):
        _refuse(values, row, where, "The time is not valid.")


def _refuse(values: Values, row: int, where: Where, message: str) -> NoReturn:
    value = values[row]
    found = value.item() if isinstance(value, np.generic) else value
    raise RowsError(message, where=where(row), found=repr(found)[:100], expected=_EXPECTED)
