"""From the cells of a column to numbers or texts, a block at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from bundle.table import is_missing, is_plain, known_text
from calibrators.validation import LARGEST_WEIGHT, LEAST_WEIGHT
from importing.errors import RowsError
from importing.rows.block import Values

Where = Callable[[int], str]
NAME_IT: Final = "Name it, or leave the row out."
_MAX_KEPT = 100_000
UNKNOWN: Final = -1
_MARKS: Final = {None: UNKNOWN} | {
    text: int(text in ("1", "1.0", "true", "True"))
    for text in ("0", "0.0", "false", "False", "1", "1.0", "true", "True")
}
_TEXTS: Final = frozenset({str, type(None)})
_NUMBERS: Final = frozenset({int, float, bool})


class Texts:
    """A column of names: object (N,) of str, stripped, None for missing.

    Args:
        required: What a row without a value lacks, for the message; None if it may.
    """

    def __init__(self, required: str | None = None) -> None:
        self._required = required
        self._chunks: list[NDArray[np.object_]] = []
        self._cleaned = _Cleaned()

    def add(self, values: Values, where: Where) -> None:
        """Add a block of cells; raises RowsError."""
        chunk = self._cleaned.all(values)
        if self._required is not None and None in set(chunk):
            row = chunk.tolist().index(None)
            raise RowsError(
                f"The {self._required} is missing.", where=where(row), found=shown(values[row]), remedy=NAME_IT
            )
        self._chunks.append(chunk)

    def finish(self) -> NDArray[np.object_]:
        """Return the column."""
        return np.concatenate(self._chunks)


class Marks:
    """A column of one label of several: int8 (N,), 1 for present, 0 for absent, `UNKNOWN` for a missing cell."""

    def __init__(self) -> None:
        self._chunks: list[NDArray[np.int8]] = []
        self._cleaned = _Cleaned()

    def add(self, values: Values, where: Where) -> None:
        """Add a block of cells; raises RowsError."""
        texts = self._cleaned.all(values).tolist()
        for row, text in enumerate(texts):
            if text not in _MARKS:
                raise RowsError(
                    "The label is neither 0 nor 1.",
                    where=where(row),
                    found=shown(values[row]),
                    expected="1 (present), 0 (absent), or an empty cell (unknown)",
                )
        self._chunks.append(np.fromiter(map(_MARKS.__getitem__, texts), np.int8, len(texts)))

    def finish(self) -> NDArray[np.int8]:
        """Return the column."""
        return np.concatenate(self._chunks)


class Measures:
    """A column of finite numbers without missing ones: float64 (N,).

    Args:
        name: What a value is, for the message.
        positive: Whether values are weights, which are above 0.
        spelled: Whether numbers are written as text.
    """

    def __init__(self, name: str, *, positive: bool, spelled: bool) -> None:
        self._name = name
        self._positive = positive
        self._spelled = spelled
        self._chunks: list[NDArray[np.float64]] = []

    def add(self, values: Values, where: Where) -> None:
        """Add a block of cells; raises RowsError."""
        chunk = numbers(values, spelled=self._spelled)
        if chunk is None or not self._valid(chunk).all():
            row = next(row for row in range(len(values)) if not self._alone(values[row : row + 1]))
            expected = f"a number from {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}" if self._positive else "a finite number"
            raise RowsError(
                f"The {self._name} is not valid.", where=where(row), found=shown(values[row]), expected=expected
            )
        self._chunks.append(chunk)

    def finish(self) -> NDArray[np.float64]:
        """Return the column."""
        return np.concatenate(self._chunks)

    def _valid(self, chunk: NDArray[np.float64]) -> NDArray[np.bool_]:
        # What calibrators accept, so that a run does not fail at its end.
        return (chunk >= LEAST_WEIGHT) & (chunk <= LARGEST_WEIGHT) if self._positive else np.isfinite(chunk)

    def _alone(self, value: Values) -> bool:
        chunk = numbers(value, spelled=self._spelled)
        return chunk is not None and bool(self._valid(chunk).all())


class Feature:
    """An input of the model: numbers (true and false among them) as float64, else texts.

    Args:
        text: Whether the values are texts even if each is a number.
        spelled: Whether numbers, true and false are written as text.
        categories: Texts that are not missing, even if they are words for it.
        literal: Whether no word stands for a missing text, so that only an empty one is missing.

    Attributes:
        turned: Whether a text came after numbers, so that the column must be read again as text.
    """

    def __init__(self, *, text: bool, spelled: bool, categories: Collection[str] = (), literal: bool = False) -> None:
        self.turned = False
        self._spelled = spelled
        self._kind: Literal["empty", "number", "boolean", "text"] = "text" if text else "empty"
        self._chunks: list[NDArray[Any]] = []
        self._cleaned = _Cleaned(categories, literal=literal)

    def add(self, values: Values, where: Where) -> None:
        """Add a block of cells; raises RowsError."""
        if self.turned:
            return
        if self._kind != "text" and self._add_numbers(values, where):
            return
        if self._kind in ("number", "boolean"):
            self.turned, self._chunks = True, []
            return
        if self._kind == "empty":
            self._kind = "text"
            self._chunks = [np.full(len(chunk), None, np.object_) for chunk in self._chunks]
        self._chunks.append(self._cleaned.all(values))

    def finish(self) -> NDArray[Any]:
        """Return the column; an empty one if it `turned`."""
        return np.concatenate(self._chunks) if self._chunks else np.empty(0, np.object_)

    def _add_numbers(self, values: Values, where: Where) -> bool:
        kind: Literal["number", "boolean"] = "number"
        chunk = numbers(values, spelled=self._spelled)
        if chunk is None and self._spelled:
            chunk, kind = _booleans(values), "boolean"
        if chunk is None:
            return False
        if np.isinf(chunk).any():
            row = int(np.isinf(chunk).argmax())
            raise RowsError("The number is not finite.", where=where(row), found=shown(values[row]))
        if not np.isnan(chunk).all():
            if self._kind not in ("empty", kind):
                return False
            self._kind = kind
        self._chunks.append(chunk)
        return True


def numbers(values: Values, *, spelled: bool) -> NDArray[np.float64] | None:
    """Return cells as float64 (n,), NaN for missing ones; None unless all others are numbers.

    Args:
        values: Cells of a column, of which texts are numbers only if `spelled`.
        spelled: Whether all cells are texts. A spelled number is finite, see also `bundle.table.parse_number`.
    """
    if isinstance(values, np.ndarray) and values.dtype != np.object_:
        return values.astype(np.float64) if values.dtype.kind in "biuf" else None
    if spelled:
        return _spelled_numbers(values)
    kinds = set(map(type, values))
    if str in kinds:
        if not all(is_missing(value) for value in values if isinstance(value, str)):
            return None
        values = [None if isinstance(value, str) else value for value in values]
    if not kinds <= _NUMBERS | _TEXTS:
        return None
    try:
        return np.array(values, np.float64)  # None becomes NaN
    except OverflowError:
        return None


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which entries of a column (N,) are missing: None, or NaN among floats."""
    if values.dtype == np.object_:
        return np.fromiter((value is None for value in values), np.bool_, len(values))
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), np.bool_)


def spellings(values: Values) -> list[str | None]:
    """Return cells as texts, None for missing ones; neither stripped nor compared with the words for missing."""
    cells = values.tolist() if isinstance(values, np.ndarray) else values
    return [cell if cell is None or type(cell) is str else _spelling(cell) for cell in cells]


def _spelled_numbers(values: Values) -> NDArray[np.float64] | None:
    if not is_plain("".join(values)):
        return None
    try:
        parsed = list(map(float, values if all(values) else [value or "nan" for value in values]))
    except ValueError:
        try:
            parsed = list(map(_Numbers().__getitem__, values))
        except ValueError:
            return None
    chunk = np.array(parsed, np.float64)
    if np.isinf(chunk).any() or not all(is_missing(values[row]) for row in np.flatnonzero(np.isnan(chunk)).tolist()):
        return None
    return chunk


def _booleans(values: Values) -> NDArray[np.float64] | None:
    try:
        return np.array(list(map(_Booleans().__getitem__, values)), np.float64)
    except KeyError:
        return None


def _spelling(value: Any) -> str | None:
    if isinstance(value, datetime):
        return value.isoformat()
    return None if is_missing(value) else str(value)


def shown(value: Any) -> str:
    """Return a value as an error shows it."""
    return repr(value.item() if isinstance(value, np.generic) else value)[:100]


class _Numbers(dict[str, float]):
    def __missing__(self, value: str) -> float:
        number = self[value] = math.nan if is_missing(value) else float(value)
        return number


class _Booleans(dict[str, float]):
    def __missing__(self, value: str) -> float:
        number = self[value] = math.nan if is_missing(value) else {"true": 1.0, "false": 0.0}[value.strip().lower()]
        return number


class _Cleaned(dict[str | None, str | None]):
    """Texts by cell; equal cells share one object.

    Inputs of the model are as `bundle.table.known_text` says, and others, without `categories`, stripped. Categories,
    and literal texts, may be words for a missing value.
    """

    def __init__(self, categories: Collection[str] | None = None, *, literal: bool = False) -> None:
        self._categories = None if categories is None else frozenset(categories)
        self._literal = literal

    def all(self, values: Values) -> NDArray[np.object_]:
        if len(self) > _MAX_KEPT:
            self.clear()
        cells = values if _TEXTS.issuperset(map(type, values)) else spellings(values)
        chunk = np.empty(len(cells), np.object_)
        chunk[:] = list(map(self.__getitem__, cells))
        return chunk

    def __missing__(self, value: str | None) -> str | None:
        known = self._categories or ()
        text = value
        if value is not None:
            text = value.strip() if self._categories is None else known_text(value, known)
        if text not in known and (not (text or "").strip() if self._literal else is_missing(text)):
            text = None
        self[value] = text
        return text
