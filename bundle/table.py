"""From a row of a table to the model's input, in the one place that both sides use.

A number stays what it is; a missing one is NaN, for which the graph takes the mean of the training rows. A category
becomes its place among those that the model has seen, counted from 1; any other, and a missing one, is 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bundle.errors import BundleFormatError, RowError
from bundle.manifest import COLUMNS_FILE, InputSpec

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
UNKNOWN = 0
_SCHEMA_VERSION = 1
_MAX_COLUMNS = 100_000
_MAX_CATEGORIES = 1_000_000
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: Its heading.
        categories: The values of a categorical column, of which the first has code 1; None for a column of numbers.
    """

    name: str
    categories: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Columns:
    """The columns that a model takes, in the order of its input.

    Attributes:
        columns: At least one; names are distinct, and so are the categories of each.

    Raises:
        BundleFormatError: These make no table.

    Example:
        >>> columns = Columns((Column("age"), Column("fault", ("driver", "third party"))))
        >>> columns.encode([{"age": "41", "fault": "driver"}, {"age": None, "fault": "nobody"}])
        array([[41.,  1.],
               [nan,  0.]], dtype=float32)
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.columns) <= _MAX_COLUMNS:
            raise _wrong("the number of columns is out of bounds", str(len(self.columns)), f"1 … {_MAX_COLUMNS}")
        if len({column.name for column in self.columns}) != len(self.columns):
            raise _wrong("a column's name stands there twice", str([c.name for c in self.columns]), "distinct names")
        for column in self.columns:
            values = column.categories
            if values is not None and (len(values) > _MAX_CATEGORIES or len(set(values)) != len(values)):
                raise _wrong(f"the categories of {column.name!r} are not distinct", str(values), "distinct values")

    def __len__(self) -> int:
        return len(self.columns)

    def encode(self, rows: Iterable[Mapping[str, str | float | None]]) -> NDArray[np.float32]:
        """Rows as the graph takes them, float32 (N, F).

        Args:
            rows: Value by column name; a column that a row lacks is missing there, other names are ignored.

        Raises:
            RowError: A value of a column of numbers is no finite number.
        """
        table = list(rows)
        encoded = np.empty((len(table), len(self.columns)), np.float32)
        for place, column in enumerate(self.columns):
            values = [row.get(column.name) for row in table]
            encoded[:, place] = _numbers(column.name, values) if column.categories is None else _codes(column, values)
        return encoded

    def check(self, spec: InputSpec) -> None:
        """Raise BundleFormatError unless these are the columns of a model with such an input."""
        if spec.kind != "array" or spec.shape != (len(self.columns),):
            raise _wrong(
                "the columns do not fit the model", f"{len(self.columns)} columns", f"{spec.kind} {spec.shape}"
            )

    def dump(self) -> bytes:
        """The bytes of `columns.json`."""
        columns = [{"name": column.name, "categories": column.categories} for column in self.columns]
        document = {"schema_version": _SCHEMA_VERSION, "columns": columns}
        return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read `columns.json`; raises BundleFormatError."""
        try:
            document: Any = json.loads(data)
            if document.keys() != {"schema_version", "columns"} or document["schema_version"] != _SCHEMA_VERSION:
                raise _wrong("other fields", str(document)[:100], f"columns, of schema version {_SCHEMA_VERSION}")
            return cls(tuple(_column(**column) for column in document["columns"]))
        except (ValueError, RecursionError, AttributeError, TypeError) as error:
            raise BundleFormatError(f"these are no columns: {error}", file=COLUMNS_FILE) from error


def is_missing(value: str | float | None) -> bool:
    """Whether a cell of a table holds nothing: one of `MISSING` in any case, NaN or None."""
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or math.isnan(value)


def _numbers(name: str, values: list[str | float | None]) -> list[float]:
    numbers = []
    for value in values:
        try:
            number = math.nan if is_missing(value) else float(value)  # type: ignore[arg-type]  # None is missing
        except (TypeError, ValueError):
            number = math.inf
        if abs(number) > _LARGEST:
            raise RowError(
                f"a value of column {name!r} is no number",
                found=repr(value)[:100],
                expected="a finite number, or nothing",
            )
        numbers.append(number)
    return numbers


def _codes(column: Column, values: list[str | float | None]) -> list[int]:
    codes = {category: code for code, category in enumerate(column.categories or (), start=UNKNOWN + 1)}
    return [UNKNOWN if is_missing(value) else codes.get(str(value).strip(), UNKNOWN) for value in values]


def _column(*, name: str, categories: list[str] | None) -> Column:
    strings = [name, *(categories or [])]
    if not isinstance(categories, list | None) or not all(isinstance(string, str) for string in strings):
        raise TypeError(f"a column of {strings!r}")
    return Column(name, None if categories is None else tuple(categories))


def _wrong(message: str, found: str, expected: str) -> BundleFormatError:
    return BundleFormatError(message, file=COLUMNS_FILE, found=found[:300], expected=expected)
