"""Stored inputs of predictions, for scoring with another model."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_FASTEST = 1


def packed(example: NDArray[Any]) -> bytes:
    """Return an input in stored form: little-endian, C-contiguous bytes as a zlib stream.

    Args:
        example: One input, of any shape and dtype.
    """
    return zlib.compress(example.astype(example.dtype.newbyteorder("<"), copy=False).tobytes(), _FASTEST)


def type_name(dtype: np.dtype[Any]) -> str:
    """Return a type as text: NumPy's name, or JSON of the fields of a structured type.

    Example:
        >>> type_name(np.dtype("float32")), type_name(np.dtype([("ids", "<i8", (16,))]))
        ('float32', '[["ids", "<i8", [16]]]')
    """
    if dtype.names is None:
        return str(dtype.name)
    fields = ((name, dtype[name]) for name in dtype.names)
    return json.dumps([[name, field.base.newbyteorder("<").str, list(field.shape)] for name, field in fields])


def type_of(name: str) -> np.dtype[Any]:
    """Return the little-endian type of a result of `type_name`.

    Example:
        >>> type_of('[["ids", "<i8", [16]]]')
        dtype([('ids', '<i8', (16,))])
    """
    if not name.startswith("["):
        return np.dtype(name).newbyteorder("<")
    return np.dtype([(field, kind, tuple(shape)) for field, kind, shape in json.loads(name)])


def unpacked(contents: Sequence[bytes], dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return stored inputs as one batch (N, *shape).

    Args:
        contents: N results of `packed`.
        dtype: Their type.
        shape: Shape of one input.

    Example:
        >>> unpacked([packed(np.array([1, 2], dtype=np.int32))], "int32", (2,))
        array([[1, 2]], dtype=int32)
    """
    whole = b"".join(map(zlib.decompress, contents))
    kind = np.dtype(dtype)
    return np.frombuffer(whole, kind.newbyteorder("<")).reshape(len(contents), *shape).astype(kind, copy=False)
