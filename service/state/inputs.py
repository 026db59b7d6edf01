"""Inputs that are kept beside their predictions, so that another model can score them again."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FASTEST = 1


def packed(example: NDArray[Any]) -> bytes:
    """Return one input as it is stored: its bytes, little-endian and C-contiguous, as a zlib stream.

    Args:
        example: One input, of any shape and dtype.
    """
    return zlib.compress(example.astype(example.dtype.newbyteorder("<"), copy=False).tobytes(), _FASTEST)


def unpacked(contents: Sequence[bytes], dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return stored inputs as one batch (N, *shape).

    Args:
        contents: What `packed` gave, N of it.
        dtype: NumPy's name of their type.
        shape: Of one input.

    Example:
        >>> unpacked([packed(np.array([1, 2], dtype=np.int32))], "int32", (2,))
        array([[1, 2]], dtype=int32)
    """
    whole = b"".join(map(zlib.decompress, contents))
    kind = np.dtype(dtype)
    return np.frombuffer(whole, kind.newbyteorder("<")).reshape(len(contents), *shape).astype(kind, copy=False)
