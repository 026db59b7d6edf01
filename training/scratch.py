"""Arrays as large as a data set: in memory, or beyond a size in a temporary file, of which the system keeps what fits.

The file has no name: it disappears with the last array in it, or with the process.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from training.errors import DataError

LARGE = 2**28
"""Bytes above which an array is in a file."""

_CHUNK = 2**24  # bytes
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Growing:
    """An array whose number of rows is not known yet.

    Args:
        example: Shape of a row.
        dtype: Type of its values.

    Raises:
        DataError: The temporary file cannot be written.
    """

    def __init__(self, example: tuple[int, ...], dtype: DTypeLike) -> None:
        self._example, self._dtype = example, np.dtype(dtype)
        self._rows = 0
        self._parts: list[NDArray[Any]] = []
        self._file: io.FileIO | None = None

    def __len__(self) -> int:
        return self._rows

    def add(self, rows: NDArray[Any]) -> None:
        """Append rows (n, *example)."""
        self._rows += len(rows)
        self._parts.append(np.ascontiguousarray(rows, self._dtype))
        if self._file is not None or self._bytes() > LARGE:
            with _disk():
                if self._file is None:
                    self._file = _temporary()
                    weakref.finalize(self, self._file.close)
                for part in self._parts:
                    left = part.reshape(-1).view(np.uint8).data
                    while left:
                        left = left[self._file.write(left) :]
            self._parts.clear()

    def array(self) -> NDArray[Any]:
        """Return all rows (N, *example)."""
        if self._file is None:
            return np.concatenate([np.empty((0, *self._example), self._dtype), *self._parts])
        return _mapped(self._file, (self._rows, *self._example), self._dtype)

    def _bytes(self) -> int:
        return self._rows * prod(self._example) * self._dtype.itemsize


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of any content, as `numpy.empty`; raises DataError if its temporary file cannot be written."""
    size = prod(shape) * np.dtype(dtype).itemsize
    if size <= LARGE or size == 0:
        return np.empty(shape, dtype)
    with _disk(), _temporary() as file:
        os.ftruncate(file.fileno(), size)
        if hasattr(os, "posix_fallocate"):  # a full disk would kill the process later
            os.posix_fallocate(file.fileno(), 0, size)
        return _mapped(file, shape, np.dtype(dtype))


def taken(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return rows of an array, as `array[rows]`; many of an array in a file are in a file again."""
    if not in_file(array):
        return np.asarray(array[rows])
    found = empty((len(rows), *array.shape[1:]), array.dtype)
    for part in chunks(found):
        found[part] = array[rows[part]]
    return found


def changed(array: NDArray[Any], change: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
    """Return an array of the same shape and type with a function of some rows applied to all; it may change them."""
    found = empty(array.shape, array.dtype) if in_file(array) else np.empty_like(array)
    for part in chunks(array):
        found[part] = change(array[part].copy())
    return found


def chunks(array: NDArray[Any]) -> Iterator[slice]:
    """Yield slices of rows that together are all, a few megabytes each."""
    size = max(1, _CHUNK // max(1, prod(array.shape[1:]) * array.itemsize))
    return (slice(start, start + size) for start in range(0, len(array), size))


def in_file(array: NDArray[Any]) -> bool:
    """Return whether an array is in a file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


def _temporary() -> io.FileIO:
    """Return a new temporary file, without a buffer: what a failed write left there would be written once more."""
    named = os.environ.get("TMPDIR")
    if named and not (Path(named).is_dir() and os.access(named, os.W_OK | os.X_OK)):  # tempfile would take another
        raise DataError(f"TMPDIR is {named}, expected a folder that can be written.")
    return tempfile.TemporaryFile(buffering=0)


def _mapped(file: io.FileIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    with _disk():
        return np.frombuffer(mmap.mmap(file.fileno(), 0), dtype).reshape(shape)


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = " Free disk space there, or set TMPDIR to a folder with more." if error.errno in _FULL else ""
        raise DataError(
            f"A temporary file of the data cannot be written in {tempfile.tempdir or 'any folder'}: "
            f"{error.strerror}.{remedy}"
        ) from error
