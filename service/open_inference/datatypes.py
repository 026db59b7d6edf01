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
    """Return the datatypes accepted for a model of `dtype`, its own first.

    >>> accepted("uint8")[:3], "FP32" in accepted("uint8"), "FP32" in accepted("float64"), accepted("bool")
    (('UINT8', 'UINT16', 'UINT32'), False, True, ('BOOL',))
    """
    own = OF_DTYPE[dtype]
    if own in (BOOL, BYTES):
        return (own,)
    others = (name for name, kind in DATATYPES.items() if name != own and (kind.whole or dtype.startswith("float")))
    return (own, *others)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Convert BF16 values to float32, which is exact.

    >>> from_bfloat16(np.array([0x3F80, 0xC020], dtype=np.uint16))
    array([ 1. , -2.5], dtype=float32)
    """
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
