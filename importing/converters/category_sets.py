"""Sets of categories as a table: which sets each category is in, looked up once per row, before the trees.

ONNX's trees compare a number with one value. A chain of such comparisons per set is what other converters write; ONNX
Runtime walks it recursively while it loads a model, and long chains end the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from importing.errors import UnsupportedModelError

LARGEST_TABLE = 64 << 20
"""Maximum size of the table, in bytes: categories times sets of a feature."""


@dataclass(frozen=True)
class CategorySet:
    """What a split asks of a categorical feature.

    Attributes:
        feature: Number of the feature.
        values: The categories of the set, from 0.
        missing: Whether a missing value counts as one of them.
    """

    feature: int
    values: tuple[int, ...]
    missing: bool


@dataclass(frozen=True, eq=False)
class Lookup:
    """The table of all sets.

    Attributes:
        features: Numbers of the categorical features, (C,).
        ends: First number that is not in any set, per feature, float64 (C,).
        offsets: First row of each feature in the table, int64 (C,). After its categories a feature has a row for
            unknown ones, and a row for missing values.
        table: Whether a category is in each of its feature's sets, uint8 (rows, S).
        places: Column of each set in the looked-up rows, which are C × S long.
    """

    features: NDArray[np.int64]
    ends: NDArray[np.float64]
    offsets: NDArray[np.int64]
    table: NDArray[np.uint8]
    places: dict[CategorySet, int]


def look_up(sets: Sequence[CategorySet]) -> Lookup:
    """Return the table of some sets.

    Raises:
        UnsupportedModelError: The table would be too large.

    Example:
        >>> found = look_up([CategorySet(3, (0, 2), missing=False), CategorySet(3, (1,), missing=True)])
        >>> found.table.tolist()  # categories 0, 1 and 2, unknown, missing
        [[1, 0], [0, 1], [1, 0], [0, 0], [0, 1]]
    """
    by_feature: dict[int, list[CategorySet]] = {}
    for each in sets:
        by_feature.setdefault(each.feature, []).append(each)
    width = max(map(len, by_feature.values()))
    ends = np.array([max(max(one.values, default=-1) for one in own) + 1 for own in by_feature.values()])
    offsets = np.concatenate([[0], np.cumsum(ends + 2)])
    if int(offsets[-1]) * width > LARGEST_TABLE:
        raise UnsupportedModelError(
            "the splits of the model list too many categories",
            found=f"{width:,} splits of one feature, and {int(offsets[-1]):,} categories",
            expected=f"at most {LARGEST_TABLE:,} as their product",
            remedy="Group rare categories, number them from 0, and train again.",
        )
    table = np.zeros((int(offsets[-1]), width), np.uint8)
    places = {}
    for order, own in enumerate(by_feature.values()):
        for column, each in enumerate(own):
            table[offsets[order] + np.array(each.values, np.int64), column] = 1
            table[offsets[order + 1] - 1, column] = each.missing
            places[each] = order * width + column
    return Lookup(np.array(list(by_feature), np.int64), ends.astype(np.float64), offsets[:-1], table, places)
