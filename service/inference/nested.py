"""Convert nested JSON lists of numbers to arrays, or name the faulty row."""

from __future__ import annotations

import math
from array import array
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import InputSpec
from service.errors import InputShapeError, InputTypeError
from service.places import in_body

_MAX_AXES = 32
_TYPECODES = {"uint8": "B", "int32": "i", "float32": "d", "float64": "d"}


def has_booleans(body: bytes) -> bool:
    """Return whether a JSON document may contain true or false; their letters alone are found much sooner.

    Example:
        >>> has_booleans(b'{"inputs": [[1, 2]]}'), has_booleans(b"[1, false]"), has_booleans(b"[1, true]")
        (False, True, True)
    """
    return (b"r" in body and b"true" in body) or (b"l" in body and b"false" in body)


def array_of(
    rows: list[Any], spec: InputSpec, *, nan_is_missing: bool = False, booleans: bool = True
) -> npt.NDArray[Any]:
    """Return a batch of nested lists, or one example without its batch axis, as an array.

    The array has the shape of the lists and a type that holds each number as exactly as float64 or int64 does.
    `conform` checks it against the model.

    Args:
        rows: Nested lists of numbers.
        spec: Input of the model.
        nan_is_missing: Whether null means a missing number.
        booleans: Whether leaves may be true or false, which are refused. The check takes time.

    Raises:
        InputTypeError: A leaf is not a number.
        InputShapeError: The lists are ragged, or the shape of an example does not match the model.
    """
    try:
        return _even(rows, spec.dtype, nan_is_missing=nan_is_missing, booleans=booleans)
    except (InputShapeError, InputTypeError):
        pass  # find the first faulty row for the error
    for index, row in enumerate(rows):
        try:
            shape = _even([row], spec.dtype, nan_is_missing=nan_is_missing, booleans=booleans).shape[1:]
        except (InputShapeError, InputTypeError) as error:
            expected = spec.dtype if isinstance(error, InputTypeError) else list(spec.shape)
            raise type(error)(
                str(error), where=in_body("inputs", index), found=error.found, expected=expected
            ) from None
        if shape not in (spec.shape, spec.shape[:-1]):
            raise InputShapeError(
                f"The model takes examples of shape {list(spec.shape)}.",
                where=in_body("inputs", index),
                found=list(shape),
                expected=list(spec.shape),
            )
    raise InputShapeError("The examples differ in shape.", where=in_body("inputs"), expected=list(spec.shape))


def _even(rows: list[Any], dtype: str, *, nan_is_missing: bool, booleans: bool) -> npt.NDArray[Any]:
    """Check lengths level by level, then convert all leaves at once.

    Raises:
        InputTypeError: A leaf is not a number.
        InputShapeError: Lists of one level differ in length.
    """
    shape = [len(rows)]
    level = rows
    while level and type(level[0]) is list:
        if set(map(type, level)) != {list}:
            raise InputTypeError("Inputs must be numbers.", found="values that are not numbers")
        sizes = set(map(len, level))
        if len(sizes) > 1:
            raise InputShapeError("The lists of the row differ in length.", found="ragged lists")
        shape.append(sizes.pop())
        if len(shape) > _MAX_AXES:
            raise InputShapeError("The lists are nested too deeply.", found=f"more than {_MAX_AXES} levels")
        level = list(chain.from_iterable(level))
    if not level:
        return np.empty(shape, np.int64)
    return _leaves(level, dtype, nan_is_missing=nan_is_missing, booleans=booleans).reshape(shape)


def _leaves(level: list[Any], dtype: str, *, nan_is_missing: bool, booleans: bool) -> npt.NDArray[Any]:
    """Convert numbers to a flat array.

    Types are checked before NumPy sees the values: given one text, NumPy converts all of them to texts, each as wide as
    the longest.

    Raises:
        InputTypeError: A value is not a number.
    """
    if not (booleans and bool in set(map(type, level))):
        try:  # the usual case: several times as fast as NumPy, and they refuse other types
            flat = bytes(level) if dtype == "uint8" else array(_TYPECODES[dtype], level)
            return np.frombuffer(flat, np.float64 if dtype.startswith("float") else dtype)
        except (TypeError, ValueError, OverflowError):
            pass
    if nan_is_missing:
        level = [math.nan if leaf is None else leaf for leaf in level]
    if not set(map(type, level)) <= {int, float}:
        raise InputTypeError("Inputs must be numbers.", found="values that are not numbers")
    try:
        return np.array(level)
    except OverflowError:
        raise InputTypeError("Inputs must be numbers of 64 bits or fewer.", found="a larger integer") from None
