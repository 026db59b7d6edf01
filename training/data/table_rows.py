"""The rows of a table, read block by block: numbers stay, categories become codes."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bundle.table import LARGEST, MAX_CATEGORIES, WHOLE, Column, Columns, is_missing, is_number
from importing.errors import RowsError
from importing.rows.block import Values
from importing.rows.roles import Roles
from importing.rows.values import Where, numbers, shown, spellings
from importing.suspicions import merged
from training.data.row_files import RoleColumns, RowBlock, RowFiles
from training.scratch import Growing, chunks


@dataclass(frozen=True)
class TableRows:
    """A table.

    Attributes:
        inputs: Numbers, and codes of categories from 1 with 0 for missing ones, float32 (N, F).
        columns: Names and categories, these in their order.
        others: Labels, weights and groups.
        merged: A sentence for each column with whole numbers that float32 makes equal.
    """

    inputs: NDArray[np.float32]
    columns: Columns
    others: RoleColumns
    merged: tuple[str, ...]


def read(files: RowFiles, roles: Roles, categorical: frozenset[str]) -> TableRows:
    """Read a table.

    Files are read twice if a column of numbers has other texts after its first block.

    Args:
        files: Its files, with the same columns.
        roles: What its columns are.
        categorical: Columns whose numbers are categories.

    Raises:
        RowsError: A file cannot be read, or a value does not fit its column.
        DataError: A temporary file cannot be written.
    """
    table = _Table(files, roles, categorical)
    for rows in files.blocks(roles):
        table.add(rows)
    if table.turned:
        table = _Table(files, roles, categorical | table.turned)
        for rows in files.blocks(roles):
            table.add(rows)
    return table.finish()


class _Table:
    """A table under way.

    Attributes:
        turned: Columns in which texts came after numbers: to be read again as categories.
    """

    def __init__(self, files: RowFiles, roles: Roles, categorical: frozenset[str]) -> None:
        self.turned = set[str]()
        self._files, self._roles, self._categorical = files, roles, categorical
        self._names: tuple[str, ...] = ()
        self._inputs: Growing | None = None
        self._codes: dict[str, dict[str, int]] = {}  # of categories by column, from 1 as they appear
        self._problems: dict[str, RowsError] = {}  # of columns that are refused unless they are categories
        self._merged: dict[str, str] = {}  # sentences by column
        self._others = RoleColumns(roles, files)

    def add(self, rows: RowBlock) -> None:
        """Add some rows; raises RowsError."""
        inputs, columns = self._begun(rows), rows.block.columns
        encoded = np.empty((len(rows.block.lines), len(self._names)), np.float32)
        for place, name in enumerate(self._names):
            encoded[:, place] = self._encoded(name, columns[name], rows.where(name))
        inputs.add(encoded)
        self._others.add(rows)

    def finish(self) -> TableRows:
        """Return the table; raises RowsError if a number in it is too large or infinite."""
        assert self._inputs is not None  # noqa: S101 — files without rows are refused
        for problem in self._problems.values():
            raise problem
        inputs, columns = self._inputs.array(), []
        orders: dict[int, NDArray[np.float32]] = {}
        for place, name in enumerate(self._names):
            codes = self._codes.get(name, {})
            names = {text: _as_known(text, codes) for text in codes}
            categories = tuple(sorted(set(names.values())))
            columns.append(Column(name, categories if name in self._codes else None))
            if codes:
                final = {text: code for code, text in enumerate(categories, 1)}
                orders[place] = order = np.zeros(len(codes) + 1, np.float32)
                order[[*codes.values()]] = [final[known] for known in names.values()]
        for part in chunks(inputs) if orders else ():
            for place, order in orders.items():
                inputs[part, place] = order[inputs[part, place].astype(np.int64)]
        return TableRows(inputs, Columns(tuple(columns)), self._others, tuple(self._merged.values()))

    def _begun(self, rows: RowBlock) -> Growing:
        """Return where rows go, after a look at the columns."""
        roles, given = self._roles, rows.block.columns
        names = roles.inputs(tuple(given))
        if self._inputs is None:
            unknown = sorted(self._categorical - {*given, *roles.drop})
            if unknown or not names:
                missing = f"no column `{unknown[0]}` (categorical)" if unknown else "no column left for the inputs"
                raise RowsError(f"The table has {missing}.", where=str(rows.path), found=", ".join(given))
            self._names, self._inputs = names, Growing((len(names),), np.float32)
            self._codes = {name: {} for name in names if name in self._categorical}
        if set(names) != set(self._names):
            strange = [f"column `{name}`, which the first rows lack" for name in names if name not in self._names]
            lacking = [f"no column `{name}`, which the first rows have" for name in self._names if name not in names]
            raise RowsError(f"The file has {(lacking + strange)[0]}.", where=str(rows.path))
        return self._inputs

    def _encoded(self, name: str, values: Values, where: Where) -> NDArray[np.float32] | NDArray[np.float64] | float:
        """Return a column of a block; 0 if it has to be read again, or is refused later."""
        if name not in self._codes:
            found = numbers(values, spelled=self._files.spelled)
            if found is not None and not (np.abs(found) > LARGEST).any():
                if name not in self._merged and (said := merged(name, found)) is not None:
                    self._merged[name] = said
                return found
            if isinstance(values, np.ndarray) and values.dtype.kind == "M":
                raise RowsError(
                    "The column holds times.", where=where(0), remedy="Drop it, or write numbers such as the hour."
                )
            strange = next((row for row, value in enumerate(values) if self._is_text(value)), None)
            if strange is None:
                row = next(row for row, value in enumerate(values) if not is_missing(value) and not _fits(value))
                expected = f"a number from −{LARGEST:.3g} to {LARGEST:.3g}, or nothing"
                what = "not finite" if math.isinf(float(values[row])) else "too large"
                problem = RowsError(
                    f"The number is {what}.", where=where(row), found=shown(values[row]), expected=expected
                )
                self._problems.setdefault(name, problem)
                return 0.0
            self._problems.pop(name, None)
            if len(self._inputs or ()):
                self.turned.add(name)
                return 0.0
            self._codes[name] = {}
        codes = self._codes[name]
        cells = spellings(values)
        each = {
            cell: 0 if cell is None or is_missing(cell) else codes.setdefault(cell.strip(), len(codes) + 1)
            for cell in dict.fromkeys(cells)
        }
        if len(codes) > MAX_CATEGORIES:
            raise RowsError(
                "The column has too many categories.",
                where=where(0),
                expected=f"at most {MAX_CATEGORIES:,}",
                remedy="Drop it if it numbers rows or customers.",
            )
        return np.fromiter(map(each.__getitem__, cells), np.float32, len(cells))

    def _is_text(self, value: object) -> bool:
        return isinstance(value, str) and not is_missing(value) and not (self._files.spelled and is_number(value))


def _as_known(text: str, categories: Container[str]) -> str:
    """Return a category; a whole number written as a float (7.0) as the integer (7), if that is a category as well."""
    whole = WHOLE.fullmatch(text)
    return whole[1] if whole is not None and whole[1] in categories else text


def _fits(value: str | float) -> bool:
    return abs(float(value)) <= LARGEST
