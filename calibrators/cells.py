"""Cells of columns: the values of a text column, the ranges of a column of numbers, each with a cell for the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Labels
from calibrators.documents import Document
from calibrators.errors import CalibrationDataError, shown
from calibrators.validation import check_shape

_RANGES: Final = 8


class Frame(Protocol):
    """A data frame, as that of pandas."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return names and columns."""


ColumnValues = Mapping[str, ArrayLike | Sequence[str | None]] | Frame
"""Named columns of N rows: numbers, or texts; None and NaN are missing."""


Column = np.ndarray[Any, Any]
"""(N,) float64, NaN where missing, or objects that are texts or None."""


def named_columns(columns: ColumnValues, rows: int, names: Sequence[str] | None = None) -> dict[str, Column]:
    """Return columns of N ``rows`` by name, only those of ``names`` if it is given.

    Raises:
        CalibrationDataError: They are neither a mapping nor a data frame, there are none, two have one name, one of
            ``names`` is missing, or values are neither numbers nor texts, or not one per row.
    """
    pairs = [(str(name), values) for name, values in columns.items()] if hasattr(columns, "items") else []
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise CalibrationDataError("Duplicate column", where="columns", found=repr(twice), expected="distinct names")
    if not named:
        raise CalibrationDataError(
            "Bad columns", where="columns", found=shown(columns), expected="at least one named column"
        )
    names = list(named) if names is None else names
    if missing := [name for name in names if name not in named]:
        raise CalibrationDataError(
            "Missing column", where="columns", found=shown(sorted(named)), expected=f"{missing[0]!r} too"
        )
    return {name: _column(name, named[name], rows) for name in names}


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of a column; one of `edges` and `texts` is not None.

    Cell 0 has missing and unknown values, and texts that were rare in the fit.

    Attributes:
        name: The column.
        edges: Lower edges of the ranges after the first, increasing.
        texts: The texts, sorted.
    """

    name: str
    edges: Doubles | None
    texts: tuple[str, ...] | None

    @classmethod
    def of(cls, name: str, column: Column, least: int) -> Cells:
        """Choose the cells of a column: eight ranges of about as many rows, or the texts of ``least`` rows or more."""
        if column.dtype == np.float64:
            present = column[~np.isnan(column)]
            quantiles = np.quantile(present, np.arange(1, _RANGES) / _RANGES) if len(present) else np.empty(0)
            return cls(name, np.unique(quantiles), None)
        texts, counts = np.unique(column[column != None], return_counts=True)  # noqa: E711 — of an array
        return cls(name, None, tuple(texts[counts >= least].tolist()))

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.texts) + 1 if self.texts is not None else len(self._edges) + 2

    @property
    def names(self) -> list[str]:
        """What each cell is called."""
        if self.texts is not None:
            return ["other", *self.texts]
        bounds = [f"{edge:g}" for edge in self._edges]
        if not bounds:
            return ["missing", "all"]
        between = [f"{low} to {high}" for low, high in pairwise(bounds)]
        return ["missing", f"below {bounds[0]}", *between, f"from {bounds[-1]}"]

    def cell_of(self, column: Column) -> Labels:
        """Return the cell (N,) of each row.

        Raises:
            CalibrationDataError: The column has numbers instead of texts, or texts instead of numbers.
        """
        if not ((column != None) & (column == column)).any():  # noqa: E711 — of an array, all of it missing
            return np.zeros(len(column), np.int64)
        if (column.dtype == np.float64) is (self.texts is not None):
            found = "numbers" if column.dtype == np.float64 else "texts"
            expected = "texts, as in the fit" if self.texts is not None else "numbers, as in the fit"
            raise CalibrationDataError("Wrong type", where=f"columns[{self.name!r}]", found=found, expected=expected)
        if self.texts is None:
            cells = np.searchsorted(self._edges, column.astype(np.float64), side="right") + 1
            return np.where(np.isnan(column.astype(np.float64)), 0, cells).astype(np.int64)
        number = {text: cell for cell, text in enumerate(self.texts, 1)}
        return np.array([number.get(value, 0) for value in column.tolist()], np.int64)

    def document(self) -> dict[str, Any]:
        """Return the cells as a JSON document."""
        kept = {"edges": self._edges.tolist()} if self.texts is None else {"texts": list(self.texts)}
        return {"name": self.name, **kept}

    @classmethod
    def from_document(cls, content: object) -> Cells:
        """Restore cells from their document.

        Raises:
            CalibrationDataError: A field is missing, unknown or out of range.
        """
        reader = Document(content)
        name = reader.text("name")
        if name is None:
            reader.refuse("name", "null", "a string")
        if reader.has("edges"):
            edges = reader.numbers("edges")
            if not (np.diff(edges) > 0).all():
                reader.refuse("edges", "out of order", "increasing edges")
            cells = cls(name, edges, None)
        else:
            texts = reader.objects("texts")
            if not all(isinstance(text, str) for text in texts) or texts != sorted(set(map(str, texts))):
                reader.refuse("texts", "repeated, out of order, or no texts", "sorted texts")
            cells = cls(name, None, tuple(map(str, texts)))
        reader.finish()
        return cells

    @property
    def _edges(self) -> Doubles:
        return np.empty(0) if self.edges is None else self.edges


def _column(name: str, values: ArrayLike | Sequence[str | None], rows: int) -> Column:
    where = f"columns[{name!r}]"
    try:
        given = values if isinstance(values, np.ndarray) else np.array(list(values), np.object_)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise CalibrationDataError(
            "Wrong shape", where=where, found=shown(values), expected="one value per row"
        ) from None
    check_shape(given, (rows,), where)
    if given.dtype.kind in "fiu":
        return _finite(given.astype(np.float64), where)
    if given.dtype.kind == "U":
        return given.astype(np.object_)
    cells = given.tolist()
    if any(isinstance(value, str) for value in cells):  # NaN is how pandas marks missing texts
        cells = [str(value) if isinstance(value, str) else None if _is_nan(value) else value for value in cells]
    kinds = {type(value) for value in cells}
    if kinds <= {str, type(None)}:
        return np.array(cells, np.object_)
    if kinds <= {int, float, type(None)}:
        numbers = [np.nan if value is None else float(value) for value in cells]
        return _finite(np.array(numbers, np.float64), where)
    found = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise CalibrationDataError("Wrong type", where=where, found=found, expected="numbers, or texts; None is missing")


def _is_nan(value: object) -> bool:
    return isinstance(value, float | np.floating) and math.isnan(value)


def _finite(column: Doubles, where: str) -> Doubles:
    if np.isinf(column).any():
        row = int(np.argmax(np.isinf(column)))
        raise CalibrationDataError(
            "Bad value", where=f"{where}[{row}]", found=str(column[row]), expected="a finite number, or NaN"
        )
    return column
