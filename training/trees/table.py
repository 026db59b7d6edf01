"""What a library of boosted trees is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle.table import UNKNOWN, Column, Columns
from training.data import Dataset
from training.scratch import changed

ROUNDS = 2000
"""Maximum rounds with early stopping."""
ROUNDS_WITHOUT_VALIDATION = 100
PATIENCE = 50
SMALL = 50_000
"""Training rows below which trees are small and see a part of rows and columns each."""

OnRound = Callable[[int, float], None]
"""Called with the number of a round, from 1, and the log loss of the validation rows (NaN without any)."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows for trees.

    Attributes:
        whole: float32 (M, F), maybe in a file: numbers, and codes of categories from 0; NaN where a value is missing or
            unknown.
        rows: Which of them these are, int64 (N,).
        labels: int64 (N,), in 0 … K − 1.
        weights: float64 (N,), above 0, or None.
    """

    whole: NDArray[np.float32]
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    weights: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def columns(self) -> int:
        """Number F of columns."""
        return int(self.whole.shape[1])

    def inputs(self, part: slice = slice(None)) -> NDArray[np.float32]:
        """Return some rows in memory, float32 (n, F); by default all, which LightGBM and XGBoost do without."""
        return self.whole[self.rows[part]]


@dataclass(frozen=True)
class Task:
    """What to train.

    Attributes:
        classes: Number K of classes.
        categorical: Places of the columns of categories.
        rounds: Maximum rounds; exactly as many without validation rows.
        patience: Rounds without a lower log loss of the validation rows before training stops.
        seed: Seed of all chance.
        threads: Threads of the library.
        settings: Parameters of the library by its own names, before its defaults and Candor's.
    """

    classes: int
    categorical: tuple[int, ...]
    rounds: int
    patience: int
    seed: int
    threads: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Grown:
    """What a library trained.

    Attributes:
        model: What `importing.converters` converts.
        rounds: Rounds of the model: those of the lowest log loss on the validation rows.
        losses: Log loss of the validation rows after each round; empty without any.
        settings: All parameters that were set, by the library's own names.
    """

    model: Any
    rounds: int
    losses: Sequence[float]
    settings: Mapping[str, Any]


Fit = Callable[[Table, Table | None, Task, OnRound], Grown]


def encoded(data: Dataset, train: NDArray[np.int64], *, ordered: Callable[[int], bool]) -> Dataset:
    """Return a table as trees take it: categories as codes from 0, and NaN for missing and unknown ones.

    Args:
        data: A table, encoded by its training rows: codes from 1, and 0 for missing and unknown categories.
        train: The training rows.
        ordered: Whether a column of this many categories becomes an ordered number, for a library that cannot split
            such a column into two sets. Its codes are then in the order of the rate of the rarest class among the
            training rows, which makes the best split of two classes one of the numbers (Breiman et al. 1984, section
            4.2.2). Rates are smoothed towards the table's by 20 rows.
    """
    if data.columns is None:
        raise TypeError(f"{data.name} is not a table")
    columns, recoded = [], dict[int, NDArray[np.float32]]()
    rare = data.labels[train] == np.bincount(data.labels[train], minlength=len(data.label_names)).argmin()
    for place, column in enumerate(data.columns.columns):
        if column.categories is None:
            columns.append(column)
            continue
        order = np.arange(len(column.categories))
        if ordered(len(order)):
            own = data.array[train, place].astype(np.int64)
            counts = np.bincount(own, minlength=len(order) + 1)[1:]
            rates = np.bincount(own, rare, minlength=len(order) + 1)[1:]
            order = np.argsort((rates + 20 * rare.mean()) / (counts + 20), kind="stable")
        to = np.full(len(order) + 1, np.nan, np.float32)
        to[order + 1] = np.arange(len(order), dtype=np.float32)
        recoded[place] = to
        names = tuple(column.categories[code] for code in order)
        columns.append(Column(column.name, names, first_code=UNKNOWN, absent=np.nan))

    def change(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        for place, to in recoded.items():
            rows[:, place] = to[rows[:, place].astype(np.int64)]
        return rows

    return replace(data, inputs=changed(data.array, change), columns=Columns(tuple(columns)))
