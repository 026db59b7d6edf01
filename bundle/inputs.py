"""The input of a model: one example as clients give it and as it lies in memory."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from bundle.schema import Frozen

TensorType = Literal[
    "bool", "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "string"
]
Size = Annotated[int, Field(ge=1, le=1_000_000)]

_FIXED = {  # types of one example, and its number of axes
    "image": (("uint8",), 3),
    "array": (("float32", "float64"), 1),
    "tokens": (("int32",), 1),
    "scores": (("float32",), 1),
}


class TensorSpec(Frozen):
    """One of several inputs of a graph.

    Attributes:
        name: Name of the graph's input.
        dtype: Type of its elements.
        shape: Shape of one example, without the batch axis; () for one value per row.
        length: Maximum characters of a string; fixed for other types.

    Example:
        >>> TensorSpec(name="country", dtype="string", length=8).field
        ('country', '<U8', ())
    """

    name: Annotated[str, Field(min_length=1, max_length=256)]
    dtype: TensorType
    shape: tuple[Size, ...] = ()
    length: Annotated[int, Field(ge=1, le=4096)] = 64

    @property
    def field(self) -> tuple[str, str, tuple[int, ...]]:
        """The tensor as a field of a structured NumPy type."""
        return self.name, f"<U{self.length}" if self.dtype == "string" else np.dtype(self.dtype).str, self.shape


class InputSpec(Frozen):
    """One example, without the batch axis.

    Attributes:
        kind: `image` (uint8, shape (H, W, C) with C 1 or 3), `array` (float32 or float64, (F,)), `tokens` (int32,
            (L,)), `tensors` (several named tensors, a structured array in memory) or `scores` (float32, (K,): the
            logits themselves).
        dtype: Type of one example; fixed by `kind`, "record" for tensors.
        shape: Shape of one example; () for tensors.
        resize: Whether an encoded image of another size is resized to (H, W) or refused.
        tensors: The inputs of kind `tensors`, in order; empty for other kinds.

    Example:
        >>> InputSpec(kind="image", dtype="uint8", shape=(8, 8, 1)).numpy
        dtype('uint8')
        >>> ids = TensorSpec(name="ids", dtype="int64", shape=(16,))
        >>> InputSpec(kind="tensors", dtype="record", tensors=(ids,)).numpy
        dtype([('ids', '<i8', (16,))])
    """

    kind: Literal["image", "array", "tokens", "tensors", "scores"]
    dtype: Literal["uint8", "float32", "float64", "int32", "record"]
    shape: tuple[Size, ...] = ()
    resize: bool = False
    tensors: tuple[TensorSpec, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind == "tensors":
            if self.dtype != "record" or self.shape or not self.tensors:
                raise ValueError("input kind 'tensors' requires dtype record, no shape, and at least one tensor")
            if len({tensor.name for tensor in self.tensors}) != len(self.tensors):
                raise ValueError("tensors must have distinct names")
        else:
            dtypes, axes = _FIXED[self.kind]
            if self.dtype not in dtypes or len(self.shape) != axes or self.tensors:
                raise ValueError(f"input kind {self.kind!r} requires dtype {dtypes[0]} and {axes} axes in shape")
        if self.kind == "image" and self.shape[2] not in (1, 3):
            raise ValueError(f"an image has 1 or 3 channels, not {self.shape[2]}")
        if self.resize and self.kind != "image":
            raise ValueError("only images can be resized")
        return self

    @property
    def numpy(self) -> np.dtype[Any]:
        """Type of an array of examples (N, *shape); structured for tensors."""
        return np.dtype([tensor.field for tensor in self.tensors] if self.kind == "tensors" else self.dtype)
