"""Datatypes of /v2 and their representation in bytes and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bundle.open_inference import BYTES, OF_DTYPE


@dataclass(frozen=True, slots=True)
class Datatype:
    """A numeric datatype.

    Attributes:
        dtype: NumPy type of binary data; raw 16 bits for BF16.
        code: Format character of `struct`, None for types that JSON cannot carry.
        whole: Whether it is an integer type.
    """

    dtype: np.dtype[Any]
    code: str | None
    whole: bool


DATATYPES: Final = {
    "UINT8": Datatype(np.dtype("<u1"), "B", whole=True),
    "UINT16": Datatype(np.dtype("<u2"), "H", whole=True),
    "UINT32": Datatype(np.dtype("<u4"), "I", whole=True),
    "UINT64": Datatype(np.dtype("<u8"), "Q", whole=True),
    "INT8": Datatype(np.dtype("<i1"), "b", whole=True),
    "INT16": Datatype(np.dtype("<i2"), "h", whole=True),
    "INT32": Datatype(np.dtype("<i4"), "i", whole=True),
    "INT64": Datatype(np.dtype("<i8"), "q", whole=True),
    "FP16": Datatype(np.dtype("<f2"), None, whole=False),
    "BF16": Datatype(np.dtype("<u2"), None, whole=False),
    "FP32": Datatype(np.dtype("<f4"), "f", whole=False),
    "FP64": Datatype(np.dtype("<f8"), "d", whole=False),
}
"""Numeric datatypes by name."""

BOOL: Final = "BOOL"


@cache
def accepted(dtype: str) -> tuple[str, ...]:
    """Return the datatypes accepted for a model of `dtype`, its own first: all numbers for numbers.

    >>> accepted("uint8")[:3], "FP32" in accepted("uint8"), accepted("bool"), accepted("string")
    (('UINT8', 'UINT16', 'UINT32'), True, ('BOOL',), ('BYTES',))
    """
    own = OF_DTYPE[dtype]
    if own in (BOOL, BYTES):
        return (own,)
    return (own, *(name for name in DATATYPES if name != own))


def without_loss(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], int | None]:
    """Return flat numbers in another type, and the index of the first that this type cannot hold, None without any.

    Floats become narrower floats by rounding, as decimals of JSON do, and are lost where they become infinite. All
    other numbers stay what they are, or are lost. NaN and infinities stay what they are between floats.

    Example:
        >>> without_loss(np.array([1, 2**24 + 1]), np.dtype(np.float32))[1]
        1
        >>> without_loss(np.array([1.0, 255.0]), np.dtype(np.uint8))
        (array([  1, 255], dtype=uint8), None)
    """
    if values.dtype == dtype:
        return values, None
    if _widens(values.dtype, dtype):
        return values.astype(dtype), None
    whole, to_whole = values.dtype.kind in "iu", dtype.kind in "iu"
    with np.errstate(over="ignore", invalid="ignore"):
        converted = values.astype(dtype)
        if whole and to_whole:
            limits = np.iinfo(dtype)
            lost = (values < limits.min) | (values > limits.max)
        elif to_whole:
            wide = values.astype(np.float64)  # holds every limit, which float16 does not
            lost = ~((wide >= float(np.iinfo(dtype).min)) & (wide < _beyond(dtype)) & (np.trunc(wide) == wide))
        elif whole:  # compared as integers, where they are still inside: NumPy would round both sides
            outside = ~(np.isfinite(converted) & (converted < _beyond(values.dtype)))
            lost = outside | (converted.astype(values.dtype) != values)
        else:
            lost = np.isinf(converted) & ~np.isinf(values)
    return converted, int(lost.argmax()) if lost.any() else None


@cache
def _widens(given: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether a type is wider than another one of the same kind, so that all its values stay exact."""
    return given.kind == dtype.kind and np.can_cast(given, dtype)


def _beyond(dtype: np.dtype[Any]) -> float:
    """Return the first number above an integer type, a power of 2."""
    return float(np.iinfo(dtype).max) + 1.0


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Convert BF16 values to float32, which is exact.

    >>> from_bfloat16(np.array([0x3F80, 0xC020], dtype=np.uint16))
    array([ 1. , -2.5], dtype=float32)
    """
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
