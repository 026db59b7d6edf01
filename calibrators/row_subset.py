"""Some rows of a matrix that may be too large to copy."""

from __future__ import annotations

from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Floats

# Up to this many entries a copy is made at once, since reading is then faster.
_ENTRIES_COPIED = 2_097_152


@final
class RowSubset:
    """Rows of a matrix (N, K) with the numbers ``index`` (n,), best in order, read on request.

    It replaces an array wherever rows are read by slices.
    """

    def __init__(self, matrix: Floats, index: npt.NDArray[np.intp]) -> None:
        self._matrix = matrix
        self._index = index
        self.shape = (len(index), matrix.shape[1])
        self.size = len(index) * matrix.shape[1]
        self.ndim = 2
        self.dtype, self.itemsize = matrix.dtype, matrix.itemsize

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, key: Any) -> Floats:
        """Return a copy of some rows; with a pair of keys, of some of their columns."""
        rows, *columns = key if isinstance(key, tuple) else (key,)
        return cast("Floats", self._matrix[(self._index[rows], *columns)])


def take_rows(matrix: Floats, index: npt.NDArray[np.intp]) -> Floats:
    """Return the rows of (N, K) with the numbers ``index`` (n,): a copy if they are few, else a `RowSubset`."""
    if len(index) * matrix.shape[1] <= _ENTRIES_COPIED:
        return matrix[index]
    return cast("Floats", RowSubset(matrix, index))
