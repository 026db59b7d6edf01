"""Groups: rows that belong together, such as those of a patient or a card."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray


def numbered(values: Sequence[Hashable | None]) -> NDArray[np.int64]:
    """Return the number of each row's group, int64 (N,), from 0 in the order of first rows.

    Args:
        values: Name of each row's group; a row with None is a group of its own.

    Example:
        >>> numbered(["b", "a", None, "b", None])
        array([0, 1, 2, 0, 3])
    """
    numbers: dict[Hashable, int] = {}
    keys = (("alone", row) if value is None else ("group", value) for row, value in enumerate(values))
    return np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, len(values))
