"""Columns of a table that teach nothing: empty, constant, or another value in each row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bundle.table import Columns
from importing.suspicions import MANY_IDS, uninformative
from training.scratch import chunks

_SAMPLE = 50_000  # rows that tell an identifier


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
    distinct = (least <= most).astype(int) + (least < most)  # 0, 1, or 2 for more
    for place, column in enumerate(columns.columns):
        ids = len(sample) >= MANY_IDS and _numbers_rows(sample[:, place])
        said = uninformative(
            column.name, distinct[place], absent=absent[place], ids=ids, advice="Drop it if it is one."
        )
        if said is not None:
            yield said


def _numbers_rows(values: NDArray[np.float32]) -> bool:
    """Return whether whole numbers, or codes of categories, differ in all rows."""
    return bool((values == np.floor(values)).all() and len(np.unique(values)) == len(values))
