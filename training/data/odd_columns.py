"""Columns of a table that teach nothing (empty, constant, another value in each row), or numbers read as categories."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bundle.table import Columns, is_number
from importing.suspicions import MANY_IDS, uninformative
from training.scratch import chunks

_SAMPLE = 50_000  # rows that tell an identifier
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_FEW_NUMBERS = 20  # as categories: fewer may be codes


def odd_columns(inputs: NDArray[np.float32], columns: Columns) -> Iterator[str]:
    """Yield a sentence for each column that teaches nothing, or whose numbers are not read as such.

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
        if (said := numbers_in_disguise(column.name, column.categories or ())) is not None:
            yield said
            continue
        ids = len(sample) >= MANY_IDS and _numbers_rows(sample[:, place])
        said = uninformative(
            column.name, distinct[place], absent=absent[place], ids=ids, advice="Drop it if it is one."
        )
        if said is not None:
            yield said


def numbers_in_disguise(name: str, categories: Sequence[str]) -> str | None:
    """Return why numbers became categories: other texts among them, decimal commas, or they are dates; else None.

    Example:
        >>> numbers_in_disguise("age", [*map(str, range(40)), "unsure"])
        "`age` has 40 numbers and other texts, such as 'unsure', so they are categories. Correct or empty those cells."
        >>> numbers_in_disguise("price", [f"{euros},50" for euros in range(40)])
        '`price` has numbers with decimal commas, which are read as categories. Write them with points.'
        >>> numbers_in_disguise("day", [f"2026-01-{day:02}" for day in range(1, 31)]).partition(":")[0]
        '`day` has dates, which are read as categories'
    """
    others = [text for text in categories if not is_number(text)]
    numbers = len(categories) - len(others)
    if others and numbers >= max(_FEW_NUMBERS, 9 * len(others)):
        return (
            f"`{name}` has {numbers:,} numbers and other texts, such as {others[0]!r}, so they are categories. Correct "
            "or empty those cells."
        )
    if len(others) >= _FEW_NUMBERS and all(
        text.count(",") == 1 and is_number(text.replace(",", ".")) for text in others
    ):
        return f"`{name}` has numbers with decimal commas, which are read as categories. Write them with points."
    if len(others) >= _FEW_NUMBERS and all(map(_DATE.match, others)):
        return (
            f"`{name}` has dates, which are read as categories: later ones are unknown. Drop it, or write numbers such "
            "as the weekday."
        )
    return None


def _numbers_rows(values: NDArray[np.float32]) -> bool:
    """Return whether whole numbers, or codes of categories, differ in all rows."""
    return bool((values == np.floor(values)).all() and len(np.unique(values)) == len(values))
