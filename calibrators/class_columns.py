"""Reading a matrix one class at a time, without as many passes over it as it has classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calibrators.arrays import Floats
from calibrators.chunks import row_chunks

# The columns that are held at a time; a memory map of K classes is read N · K · itemsize / 32 MiB times.
_BLOCK_BYTES = 32 * 2**20


def class_columns(matrix: Floats) -> Iterator[tuple[int, Floats]]:
    """Yields each class and its column.

    A column of a large matrix is one number in each page of memory; so the matrix is read in row chunks, as many
    classes at once as 32 MiB hold, one at least.

    Args:
        matrix: (N, K), a memory map perhaps.

    Yields:
        k = 0 … K−1, and its column (N,), contiguous and of the matrix's type, to be read before the next is asked for.
    """
    rows, classes = matrix.shape
    width = min(max(1, _BLOCK_BYTES // (max(rows, 1) * matrix.itemsize)), classes)
    block = np.empty((width, rows), matrix.dtype)
    for first in range(0, classes, width):
        last = min(first + width, classes)
        for part in row_chunks(rows, classes):
            block[: last - first, part] = matrix[part, first:last].T
        for k in range(first, last):
            yield k, block[k - first]
