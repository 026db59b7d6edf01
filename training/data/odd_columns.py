"""Columns of a table that teach nothing: empty, constant, or another value in each row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bundle.table import Columns
from training.scratch import chunks

_FEWEST, _SAMPLE = 50, 50_000  # rows that tell an identifier


def odd_columns(inputs: NDArray[np.float32], columns: Columns) -> Iterator[str]:
    """Yield a sentence for each column that teaches nothing.

    Args:
        inputs: Rows (N, F), at least one; NaN for a missing number, 0 for a missing category.
        columns: The columns.
    """
    least, most = np.full(inputs.shape[1], np.inf), np.full(inputs.shape[1], -np.inf)
    absent = np.zeros(inputs.shape[1], np.bool_)
    categorical = np.array([column.categories is not None for column in columns.columns])
    for part in chunks(inputs):
        rows = np.where(categorical & (inputs[part] == 0), np.nan, inputs[part])
        least, most = np.fmin(least, np.fmin.reduce(rows)), np.fmax(most, np.fmax.reduce(rows))
        absent |= np.isnan(rows).any(axis=0)
    sample = inputs[:_SAMPLE]
    for place, column in enumerate(columns.columns):
        if least[place] > most[place]:
            yield f"`{column.name}` is empty."
        elif least[place] == most[place] and not absent[place]:
            yield f"`{column.name}` is constant."
        elif len(sample) >= _FEWEST and _numbers_rows(sample[:, place]):
            yield f"`{column.name}` has another value in each row, like an identifier. Drop it if it is one."


def _numbers_rows(values: NDArray[np.float32]) -> bool:
    """Return whether whole numbers, or codes of categories, differ in all rows."""
    return bool((values == np.floor(values)).all() and len(np.unique(values)) == len(values))
