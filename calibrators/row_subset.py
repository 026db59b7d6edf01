"""Some rows of a matrix that may be too large to copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles, Floats

Change: TypeAlias = Callable[[Doubles], Doubles]

# Up to this many entries a copy is made at once, since reading is then faster.
_ENTRIES_COPIED = 2_097_152


@final
class RowSubset:
    """Rows of a matrix (N, K) with the numbers ``index`` (n,), best in order, read on request.

    It replaces an array wherever rows are read by slices. ``change`` maps rows that were read, float64
    (n, K) and free to overwrite, to others.
    """

    def __init__(self, matrix: Floats, index: npt.NDArray[np.intp], change: Change | None = None) -> None:
        self._matrix = matrix
        self._index = index
        self._change = change
        self.shape = (len(index), matrix.shape[1])
        self.size = len(index) * matrix.shape[1]
        self.ndim = 2
        self.dtype = matrix.dtype if change is None else np.dtype(np.float64)
        self.itemsize = self.dtype.itemsize

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, key: Any) -> Floats:
        """Return a copy of some rows; with a pair of keys, of some of their columns."""
        rows, *columns = key if isinstance(key, tuple) else (key,)
        if self._change is not None:
            changed = self._change(self._matrix[self._index[rows]].astype(np.float64))
            return changed[(slice(None), *columns)] if columns else changed
        return cast("Floats", self._matrix[(self._index[rows], *columns)])


def take_rows(matrix: Floats, index: npt.NDArray[np.intp]) -> Floats:
    """Return the rows of (N, K) with the numbers ``index`` (n,): a copy if they are few, else a `RowSubset`."""
    if len(index) * matrix.shape[1] <= _ENTRIES_COPIED:
        return matrix[index]
    return cast("Floats", RowSubset(matrix, index))
