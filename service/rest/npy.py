"""Read NumPy `.npy` files without pickle and without trusting their header."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import InputShapeError, InputTypeError, MalformedBodyError
from service.places import in_body

_MAX_HEADER = 4096
_MAX_AXES = 32


def read_npy(body: bytes, expected_dtype: str) -> npt.NDArray[Any]:
    """Return the array of a `.npy` file, without a copy if its byte order is native.

    Args:
        body: File in format 1.0 or 2.0.
        expected_dtype: Type of the model input, for the error.

    Raises:
        MalformedBodyError: The file is not valid, or its length does not match its header.
        InputTypeError: The array does not contain numbers.
        InputShapeError: The array is empty.
    """
    try:
        shape, fortran, dtype, offset = _header(body[: _header_end(body)])
    except Exception as error:  # NumPy's parser raises nearly anything on hostile bytes
        raise MalformedBodyError(
            f"The body is not a NumPy .npy file: {error}", expected="NumPy format 1.0 or 2.0"
        ) from error
    if dtype.hasobject or dtype.kind not in "biuf":
        raise InputTypeError(
            "The array does not contain numbers.", where=in_body("inputs"), found=str(dtype), expected=expected_dtype
        )
    if len(shape) > _MAX_AXES or not all(type(side) is int and side >= 0 for side in shape):
        raise MalformedBodyError(
            "The shape in the header is not valid.",
            where=in_body("inputs"),
            found=str(shape),
            expected="a few sizes of 0 or more",
        )
    count = 1
    for side in shape:  # Python integers: a hostile shape must not overflow
        count *= side
    have = len(body) - offset
    if have != count * dtype.itemsize:
        raise MalformedBodyError(
            "The length of the body does not match its header.",
            where=in_body("inputs"),
            found=f"{have} bytes of data",
            expected=f"{count * dtype.itemsize} bytes for shape {list(shape)} of {dtype}",
            remedy="The file is truncated or has trailing bytes. Write it again with numpy.save.",
        )
    if not count:  # before the other sizes, which may be beyond what an array can have
        raise InputShapeError(
            "The request has no inputs.", where=in_body("inputs"), found=str(list(shape)), expected="at least 1 example"
        )
    flat = np.frombuffer(body, dtype=dtype, offset=offset, count=count)
    inputs = flat.reshape(shape, order="F" if fortran else "C")
    return inputs if dtype.isnative else inputs.astype(dtype.newbyteorder("="))


def _header_end(body: bytes) -> int:
    """Return the end of the header as it declares it, within limits. Its parser reports errors."""
    lengths = slice(8, 10 if body[6:7] == b"\x01" else 12)
    return min(lengths.stop + int.from_bytes(body[lengths], "little"), lengths.stop + _MAX_HEADER + 1)


@lru_cache(maxsize=256)  # clients send the same few headers, and each runs Python's parser
def _header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream, max_header_size=_MAX_HEADER)
    return shape, fortran, dtype, stream.tell()
