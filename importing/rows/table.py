"""Columns of a table, gathered block by block."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from importing.errors import RowsError
from importing.rows.block import Block
from importing.rows.roles import Roles
from importing.rows.times import Times
from importing.rows.values import Feature, Marks, Measures, Texts, Where


@dataclass(frozen=True)
class Table:
    """Finished columns of a table.

    Attributes:
        features: Inputs of the model by name.
        others: Columns with a role, by role; `scores` is (N, S), `marks` (N, L).
        lines: Number of each row's first line, or of the row.
        turned: Inputs in which texts came after numbers: empty, to be gathered again as text.
    """

    features: dict[str, NDArray[Any]]
    others: dict[str, NDArray[Any]]
    lines: NDArray[np.int64]
    turned: frozenset[str]


def gather(
    path: Path,
    blocks: Iterable[Block],
    roles: Roles,
    *,
    again: Collection[str],
    spelled: bool,
    unit: str,
) -> Table:
    """Gather the columns of a table.

    Args:
        path: The file, for messages.
        blocks: Its rows.
        roles: What the columns are.
        again: Inputs in which texts came after numbers: gather these alone, as texts; empty to gather all inputs.
        spelled: Whether numbers are written as text.
        unit: What the blocks' line numbers count.

    Raises:
        RowsError: A value does not fit its column's role, or there are no rows.
    """
    columns = _columns(roles, spelled=spelled)
    features: dict[str, Feature] = {}
    lines: list[NDArray[np.int64]] = []
    for block in blocks:
        for name in roles.inputs(tuple(block.columns)):
            if again and name not in again:
                continue
            if name not in features:
                features[name] = feature = Feature(
                    text=roles.text is None or name in roles.text or name in again,
                    spelled=spelled,
                    categories=roles.categories.get(name, ()),
                    literal=roles.literal is None or name in roles.literal,
                )
                for earlier in lines:
                    feature.add([None] * len(earlier), _nowhere)
            features[name].add(block.columns[name], _where(path, unit, block, name))
        for name, column in columns.values():
            column.add(block.columns[name], _where(path, unit, block, name))
        lines.append(block.lines)
    if not lines:
        raise RowsError("The file has no rows.", where=str(path))
    turned = frozenset(name for name, feature in features.items() if feature.turned)
    others: dict[str, NDArray[Any]] = {
        role: column.finish() for role, (_, column) in columns.items() if not isinstance(role, int)
    }
    if roles.marks:
        others["marks"] = np.column_stack([columns[~place][1].finish() for place in range(len(roles.marks))])
    if roles.scores:
        others["scores"] = np.column_stack([columns[place][1].finish() for place in range(len(roles.scores))])
    return Table({name: features.pop(name).finish() for name in list(features)}, others, np.concatenate(lines), turned)


def _columns(roles: Roles, *, spelled: bool) -> dict[str | int, tuple[str, Texts | Measures | Times | Marks]]:
    """Return the name and an empty column by role, by its place for a score, and by ~place for a label of several."""
    columns: dict[str | int, tuple[str, Texts | Measures | Times | Marks]] = {}
    if roles.label:
        columns["label"] = roles.label, Texts("label")
    for place, name in enumerate(roles.marks):
        columns[~place] = name, Marks()
    for role in ("group", "segment", "part"):
        if (name := getattr(roles, role)) is not None:
            columns[role] = name, Texts("part" if role == "part" else None)
    if roles.time is not None:
        columns["time"] = roles.time, Times(spelled=spelled)
    if roles.weight is not None:
        columns["weight"] = roles.weight, Measures("weight", positive=True, spelled=spelled)
    for place, name in enumerate(roles.scores):
        columns[place] = name, Measures("score", positive=False, spelled=spelled)
    return columns


def _where(path: Path, unit: str, block: Block, name: str) -> Where:
    return lambda row: f"{path}, {unit} {block.lines[row]}, column {name}"


def _nowhere(row: int) -> str:
    raise AssertionError(row)  # missing values are always accepted
