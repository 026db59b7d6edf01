"""Some rows of a file, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Sequence[Any] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of a table.

    Attributes:
        columns: Values by column: a sequence of str, numbers, bool and None, or an array of float64 or datetime64[us].
        lines: Number of each row's first line, or of the row, int64 (n,), from 1.
    """

    columns: dict[str, Values]
    lines: NDArray[np.int64]
