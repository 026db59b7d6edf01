"""Nested lists of numbers, as JSON has them, to arrays; or which of them is no such thing, and why."""

from __future__ import annotations

import math
from array import array
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import InputSpec
from service.errors import InputShapeError, InputTypeError

_MAX_AXES = 32
_TYPECODES = {"uint8": "B", "int32": "i", "float32": "d"}


def array_of(
    rows: list[Any], spec: InputSpec, *, nan_is_missing: bool = False, booleans: bool = True
) -> npt.NDArray[Any]:
    """Return a batch of nested lists, or one example without its batch axis, as an array.

    The array has the lists' shape and a type that holds every number exactly as a double or an integer of 64 bits does;
    whether the model takes that is for `conform` to say.

    Args:
        rows: A list of numbers, or of such lists.
        spec: The model's input.
        nan_is_missing: Whether null stands for a number that is missing.
        booleans: Whether there may be true or false among the leaves, which are no numbers; looking costs time.

    Raises:
        InputTypeError: A leaf is no number.
        InputShapeError: The lists are ragged, or the examples have another shape than the model's.
    """
    try:
        return _even(rows, spec.dtype, nan_is_missing=nan_is_missing, booleans=booleans)
    except (InputShapeError, InputTypeError):
        pass  # said of the first row that is to blame
    for index, row in enumerate(rows):
        try:
            shape = _even([row], spec.dtype, nan_is_missing=nan_is_missing, booleans=booleans).shape[1:]
        except (InputShapeError, InputTypeError) as error:
            expected = spec.dtype if isinstance(error, InputTypeError) else list(spec.shape)
            raise type(error)(str(error), where=f"/inputs/{index}", found=error.found, expected=expected) from None
        if shape not in (spec.shape, spec.shape[:-1]):
            raise InputShapeError(
                f"The model takes examples of shape {list(spec.shape)}.",
                where=f"/inputs/{index}",
                found=list(shape),
                expected=list(spec.shape),
            )
    raise InputShapeError("The examples differ in shape.", where="/inputs", expected=list(spec.shape))


def _even(rows: list[Any], dtype: str, *, nan_is_missing: bool, booleans: bool) -> npt.NDArray[Any]:
    """Check lengths level by level, then turn all leaves at once.

    Raises:
        InputTypeError: A leaf is no number.
        InputShapeError: Lists of one level differ in length.
    """
    shape = [len(rows)]
    level = rows
    while level and type(level[0]) is list:
        if set(map(type, level)) != {list}:
            raise InputTypeError("Inputs must be numbers.", found="values that are not numbers")
        sizes = set(map(len, level))
        if len(sizes) > 1:
            raise InputShapeError("The row's lists differ in length.", found="ragged lists")
        shape.append(sizes.pop())
        if len(shape) > _MAX_AXES:
            raise InputShapeError("The lists are nested too deeply.", found=f"more than {_MAX_AXES} levels")
        level = list(chain.from_iterable(level))
    if not level:
        return np.empty(shape, np.int64)
    return _leaves(level, dtype, nan_is_missing=nan_is_missing, booleans=booleans).reshape(shape)


def _leaves(level: list[Any], dtype: str, *, nan_is_missing: bool, booleans: bool) -> npt.NDArray[Any]:
    """Turn numbers into a flat array.

    NumPy sees a value only when it is known to be a number: left to itself it makes text of everything as soon as one
    leaf is text, each entry as wide as the longest.

    Raises:
        InputTypeError: One is no number.
    """
    if not (booleans and bool in set(map(type, level))):
        try:  # the usual case: these refuse whatever is no number, several times as fast as NumPy reads one
            flat = bytes(level) if dtype == "uint8" else array(_TYPECODES[dtype], level)
            return np.frombuffer(flat, np.float64 if dtype == "float32" else dtype)
        except (TypeError, ValueError, OverflowError):
            pass
    if nan_is_missing:
        level = [math.nan if leaf is None else leaf for leaf in level]
    if not set(map(type, level)) <= {int, float}:
        raise InputTypeError("Inputs must be numbers.", found="values that are not numbers")
    try:
        return np.array(level)
    except OverflowError:
        raise InputTypeError("Inputs must be numbers of at most 64 bits.", found="a larger integer") from None
