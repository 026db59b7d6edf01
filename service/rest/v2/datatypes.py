"""The protocol's datatypes: how their values lie in bytes and in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

BYTES: Final = "BYTES"


@dataclass(frozen=True, slots=True)
class Datatype:
    """A datatype of numbers.

    Attributes:
        dtype: How its values lie in binary data; those of BF16 as the 16 bits that they are.
        code: What `struct` calls it, None where JSON cannot carry it.
        whole: Whether it holds integers only.
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
"""Datatypes of numbers by name; BOOL and BYTES, which no model takes as numbers, are not among them."""

OF_DTYPE: Final = {"uint8": "UINT8", "int32": "INT32", "float32": "FP32"}
"""Name of the datatype that a model of each dtype takes as it is."""


@cache
def accepted(dtype: str) -> tuple[str, ...]:
    """Return the names of the datatypes whose values a model of `dtype` may take, its own first.

    >>> accepted("uint8")[:3], "FP32" in accepted("uint8"), "FP32" in accepted("float32")
    (('UINT8', 'UINT16', 'UINT32'), False, True)
    """
    own = OF_DTYPE[dtype]
    others = (name for name, kind in DATATYPES.items() if name != own and (kind.whole or dtype == "float32"))
    return (own, *others)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return the values of BF16 as float32, which holds them exactly.

    >>> from_bfloat16(np.array([0x3F80, 0xC020], dtype=np.uint16))
    array([ 1. , -2.5], dtype=float32)
    """
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
