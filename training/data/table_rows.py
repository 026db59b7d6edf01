"""The rows of a table, read block by block: numbers stay, categories become codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bundle.table import Column, Columns, is_missing, parse_number
from importing.errors import RowsError
from importing.rows import csv_file, parquet
from importing.rows.block import Block, Values
from importing.rows.roles import Roles
from importing.rows.stream import Hashed, readable
from importing.rows.values import Measures, Texts, Where, numbers, spellings
from training.scratch import Growing, chunks
from training.stored import progress

MOST_CATEGORIES = 1_000_000
_LARGEST = float(np.finfo(np.float32).max)
_PARQUET = ".parquet"


@dataclass(frozen=True)
class TableRows:
    """A table.

    Attributes:
        inputs: Numbers, and codes of categories from 1 with 0 for missing ones, float32 (N, F).
        columns: Names and categories, these in their order.
        labels: Texts, object (N,).
        weights: float64 (N,), or None.
        groups: Texts, None for missing ones, object (N,); or None.
        digests: sha256 of each file.
    """

    inputs: NDArray[np.float32]
    columns: Columns
    labels: NDArray[np.object_]
    weights: NDArray[np.float64] | None
    groups: NDArray[np.object_] | None
    digests: list[str]


def read(paths: list[Path], roles: Roles, categorical: frozenset[str]) -> TableRows:
    """Read a table.

    Files are read twice if a column of numbers has other texts after its first block.

    Args:
        paths: Its files, with the same columns.
        roles: What its columns are.
        categorical: Columns whose numbers are categories.

    Raises:
        RowsError: A file cannot be read, or a value does not fit its column.
        DataError: A temporary file cannot be written.
    """
    where = str(paths[0] if len(paths) == 1 else paths[0].parent)
    kinds = {path.suffix.lower() == _PARQUET for path in paths}
    if len(kinds) > 1:
        raise RowsError("Some files are Parquet and some are not.", where=where)
    spelled = kinds == {False}
    table = _Table(roles, categorical, spelled=spelled)
    digests = _pass(paths, table)
    if table.turned:
        table = _Table(roles, categorical | table.turned, spelled=spelled)
        if _pass(paths, table) != digests:
            raise RowsError("A file changed while it was read.", where=where)
    return table.finish(digests, where)


def is_number(text: str) -> bool:
    """Return whether a text spells a number."""
    try:
        parse_number(text)
    except ValueError:
        return False
    return True


def _pass(paths: list[Path], table: _Table) -> list[str]:
    """Give all rows to a table; return the sha256 of each file."""
    digests, told = [], progress("Reading", len(paths), "files")
    for number, path in enumerate(paths):
        told(number)
        with readable(path), path.open("rb", buffering=0) as file:
            hashed = Hashed(file)
            if table.spelled:
                blocks: Iterator[Block] = csv_file.blocks(path, hashed, table.roles.check)
            else:
                hashed.sha256()
                file.seek(0)
                blocks = parquet.blocks(path, file, table.roles)
            for block in blocks:
                table.add(path, block)
            digests.append(hashed.sha256())
    return digests


class _Table:
    """A table under way.

    Attributes:
        roles: What its columns are.
        spelled: Whether numbers are written as text.
        turned: Columns in which texts came after numbers: to be read again as categories.
    """

    def __init__(self, roles: Roles, categorical: frozenset[str], *, spelled: bool) -> None:
        self.roles, self.spelled, self.turned = roles, spelled, set[str]()
        self._categorical = categorical
        self._names: tuple[str, ...] = ()
        self._inputs: Growing | None = None
        self._codes: dict[str, dict[str, int]] = {}  # of categories by column, from 1 as they appear
        self._problems: dict[str, RowsError] = {}  # of columns that are refused unless they are categories
        self._label, self._group = Texts("label"), Texts()
        self._weight = Measures("weight", positive=True, spelled=spelled)

    def add(self, path: Path, block: Block) -> None:
        """Add some rows; raises RowsError."""
        roles, count = self.roles, len(block.lines)

        def where(name: str) -> Where:
            return lambda row: f"{path}, {'line' if self.spelled else 'row'} {block.lines[row]}, column {name}"

        inputs = self._begun(path, block)
        encoded = np.empty((count, len(self._names)), np.float32)
        for place, name in enumerate(self._names):
            encoded[:, place] = self._encoded(name, block.columns[name], where(name))
        inputs.add(encoded)
        self._label.add(block.columns[roles.label], where(roles.label))
        if roles.weight is not None:
            self._weight.add(block.columns[roles.weight], where(roles.weight))
        if roles.group is not None:
            self._group.add(block.columns[roles.group], where(roles.group))

    def finish(self, digests: list[str], where: str) -> TableRows:
        """Return the table; raises RowsError if it has no rows, or a column holds what is not a number."""
        if self._inputs is None:
            raise RowsError("The table has no rows.", where=where)
        for problem in self._problems.values():
            raise problem
        inputs, columns = self._inputs.array(), []
        orders: dict[int, NDArray[np.float32]] = {}
        for place, name in enumerate(self._names):
            codes = self._codes.get(name)
            categories = None if codes is None else tuple(sorted(codes))
            columns.append(Column(name, categories))
            if codes is not None and categories is not None:
                orders[place] = order = np.zeros(len(codes) + 1, np.float32)
                order[[codes[text] for text in categories]] = np.arange(1, len(codes) + 1)
        for part in chunks(inputs) if orders else ():
            for place, order in orders.items():
                inputs[part, place] = order[inputs[part, place].astype(np.int64)]
        return TableRows(
            inputs,
            Columns(tuple(columns)),
            self._label.finish(),
            None if self.roles.weight is None else self._weight.finish(),
            None if self.roles.group is None else self._group.finish(),
            digests,
        )

    def _begun(self, path: Path, block: Block) -> Growing:
        """Return where rows go, after a look at the columns."""
        names = self.roles.inputs(tuple(block.columns))
        if self._inputs is None:
            unknown = sorted(self._categorical - {*block.columns, *self.roles.drop})
            if unknown or not names:
                missing = f"no column `{unknown[0]}` (categorical)" if unknown else "no column beside those with a role"
                raise RowsError(f"The table has {missing}.", where=str(path), found=", ".join(block.columns))
            self._names, self._inputs = names, Growing((len(names),), np.float32)
            self._codes = {name: {} for name in names if name in self._categorical}
        if set(names) != set(self._names):
            other = min(set(names) ^ set(self._names))
            raise RowsError(
                f"The columns are not those of the first file: `{other}`.",
                where=str(path),
                found=", ".join(names),
                expected=", ".join(self._names),
            )
        return self._inputs

    def _encoded(self, name: str, values: Values, where: Where) -> NDArray[np.float32] | NDArray[np.float64] | float:
        """Return a column of a block; 0 if it has to be read again, or is refused later."""
        if name not in self._codes:
            found = numbers(values, spelled=self.spelled)
            if found is not None and not (np.abs(found) > _LARGEST).any():
                return found
            if isinstance(values, np.ndarray) and values.dtype.kind == "M":
                raise RowsError(
                    "The column holds times.", where=where(0), remedy="Drop it, or write numbers such as the hour."
                )
            strange = next((row for row, value in enumerate(values) if self._is_text(value)), None)
            if strange is None:
                row = next(row for row, value in enumerate(values) if not is_missing(value) and not _fits(value))
                shown = repr(values[row])[:100]
                self._problems.setdefault(
                    name,
                    RowsError("The number is too large.", where=where(row), found=shown, expected="a finite number"),
                )
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
        if len(codes) > MOST_CATEGORIES:
            raise RowsError(
                "The column has too many categories.",
                where=where(0),
                expected=f"at most {MOST_CATEGORIES:,}",
                remedy="Drop it if it numbers rows or customers.",
            )
        return np.fromiter(map(each.__getitem__, cells), np.float32, len(cells))

    def _is_text(self, value: object) -> bool:
        return isinstance(value, str) and not is_missing(value) and not (self.spelled and is_number(value))


def _fits(value: str | float) -> bool:
    return abs(float(value)) <= _LARGEST
