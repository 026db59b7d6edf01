"""Prediction payloads to arrays: JSON, `.npy` and single images."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from bundle import ImageError, InputSpec
from bundle.images import decode_image
from service.errors import (
    InputShapeError,
    InputTypeError,
    InputValueError,
    MalformedBodyError,
    UnsupportedMediaTypeError,
)

NPY_TYPES = ("application/x-npy", "application/octet-stream")
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")
_MAX_HEADER = 4096
_MAX_AXES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """What a predict request carries.

    Attributes:
        inputs: Array as it came, or as it was decoded.
        references: The client's own name of each row, if given.
        groups: What each row belongs to, if given.
    """

    inputs: npt.NDArray[Any]
    references: list[str | None] | None = None
    groups: list[str | None] | None = None


def parse(body: bytes, media_type: str, spec: InputSpec, *, max_pixels: int) -> Payload:
    """Turn a body into a payload by its media type.

    Args:
        body: The bytes that came.
        media_type: As `media_type_of` gives it.
        spec: The model's input.
        max_pixels: Pixels that one image may have.

    Raises:
        UnsupportedMediaTypeError: The content type is none of those that are read.
        MalformedBodyError: The bytes are not what the content type says.
        InputError: They are, and cannot be used.
    """
    try:
        parser = _PARSERS[media_type]
    except KeyError:
        raise UnsupportedMediaTypeError(
            f"Predictions are not read from {media_type!r}.", found=media_type, expected=sorted(_PARSERS)
        ) from None
    return parser(body, spec, max_pixels)


def media_type_of(content_type: str | None) -> str:
    """Return the media type of a Content-Type header, in lower case; JSON where there is none.

    >>> media_type_of("Application/JSON; charset=utf-8"), media_type_of(None)
    ('application/json', 'application/json')
    """
    return (content_type or "application/json").partition(";")[0].strip().lower()


def _json(body: bytes, spec: InputSpec, max_pixels: int) -> Payload:  # noqa: ARG001
    document = load_json(body)
    unknown = sorted(document.keys() - {"inputs", "references", "groups"})
    if unknown or "inputs" not in document:
        raise MalformedBodyError(
            "The body needs `inputs`, and may have `references` and `groups`.",
            where=f"/{unknown[0]}" if unknown else "/inputs",
            found=sorted(document),
            expected=["inputs", "references", "groups"],
        )
    rows = document["inputs"]
    if not isinstance(rows, list):
        raise InputTypeError("`inputs` must be an array.", where="/inputs", found=type(rows).__name__, expected="array")
    if not rows:
        raise InputShapeError("There are no inputs.", where="/inputs", found=0, expected="at least 1 example")
    inputs = _array(rows, spec)
    names = {key: _names(document.get(key), key) for key in ("references", "groups")}
    return Payload(inputs, **names)


def _npy(body: bytes, spec: InputSpec, max_pixels: int) -> Payload:  # noqa: ARG001
    stream = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(stream, max_header_size=_MAX_HEADER)
    except Exception as error:  # NumPy's parser raises nearly anything on hostile bytes
        raise MalformedBodyError(
            f"The body is not a NumPy .npy file: {error}", expected="NumPy format 1.0 or 2.0"
        ) from error
    if dtype.hasobject or dtype.kind not in "biuf":
        raise InputTypeError("The array does not hold numbers.", where="/inputs", found=str(dtype), expected=spec.dtype)
    if len(shape) > _MAX_AXES or not all(type(side) is int and side >= 0 for side in shape):
        raise MalformedBodyError(
            "The header's shape is none.", where="/inputs", found=str(shape), expected="a few sizes of 0 or more"
        )
    count = 1
    for side in shape:  # Python integers: a hostile shape must not overflow
        count *= side
    have = len(body) - stream.tell()
    if have != count * dtype.itemsize:
        raise MalformedBodyError(
            "The body's length is not what its header says.",
            where="/inputs",
            found=f"{have} bytes of data",
            expected=f"{count * dtype.itemsize} bytes for shape {list(shape)} of {dtype}",
            remedy="The file is truncated or has something behind it; write it again with numpy.save.",
        )
    flat = np.frombuffer(body, dtype=dtype, offset=stream.tell(), count=count)
    inputs = flat.reshape(shape, order="F" if fortran else "C")
    if not dtype.isnative:
        inputs = inputs.astype(dtype.newbyteorder("="))
    return Payload(inputs)


def _image(body: bytes, spec: InputSpec, max_pixels: int) -> Payload:
    if spec.kind != "image":
        raise UnsupportedMediaTypeError(
            "This model does not take images.", found="an image", expected=["application/json", *NPY_TYPES]
        )
    try:
        return Payload(decode_image(body, spec, max_pixels=max_pixels)[None])
    except ImageError as error:
        raise InputValueError(str(error), where="/inputs/0", found=error.found, expected=error.expected) from error


def load_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        MalformedBodyError: It is not JSON, or not an object. NaN and Infinity are not JSON.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBodyError(
            f"The body is not JSON: {error}.",
            found=f"{len(body)} bytes",
            expected="a JSON object (NaN and Infinity are not JSON)",
        ) from error
    if not isinstance(document, dict):
        raise MalformedBodyError("The body must be a JSON object.", found=type(document).__name__, expected="object")
    return document


def _array(rows: list[Any], spec: InputSpec) -> npt.NDArray[Any]:
    try:
        return _even(rows)
    except (InputShapeError, InputTypeError):
        pass  # said of the first row that is to blame
    for index, row in enumerate(rows):
        try:
            shape = _even([row]).shape[1:]
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


def _even(rows: list[Any]) -> npt.NDArray[Any]:
    """Return nested lists of numbers as an array.

    Types and lengths are checked level by level before NumPy sees a value: left to itself it makes text of everything
    as soon as one leaf is text, each entry as wide as the longest.

    Raises:
        InputTypeError: A leaf is no number.
        InputShapeError: Lists of one level differ in length.
    """
    shape = [len(rows)]
    level = rows
    while not (kinds := set(map(type, level))) <= {int, float}:
        if kinds != {list}:
            raise InputTypeError("Inputs must be numbers.", found="values that are not numbers")
        sizes = set(map(len, level))
        if len(sizes) > 1:
            raise InputShapeError("The row's lists differ in length.", found="ragged lists")
        shape.append(sizes.pop())
        if len(shape) > _MAX_AXES:
            raise InputShapeError("The lists are nested too deeply.", found=f"more than {_MAX_AXES} levels")
        level = list(chain.from_iterable(level))
    try:
        return np.array(level).reshape(shape)
    except OverflowError:
        raise InputTypeError("Inputs must be numbers of at most 64 bits.", found="a larger integer") from None


def _names(value: Any, key: str) -> list[str | None] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(name is None or isinstance(name, str) for name in value):
        raise InputTypeError(
            f"`{key}` must be an array of strings.", where=f"/{key}", expected="array of strings or nulls"
        )
    for index, name in enumerate(value):
        if name is not None and (not 0 < len(name) <= 200 or "\0" in name):
            raise InputValueError(
                f"Entries of `{key}` have 1 to 200 characters, none of them NUL.",
                where=f"/{key}/{index}",
                found=f"{len(name)} characters" + ", with a NUL" * ("\0" in name),
                expected="1 to 200 characters without NUL",
            )
    return value


_Parser = Callable[[bytes, InputSpec, int], Payload]
_PARSERS: dict[str, _Parser] = {
    "application/json": _json,
    **dict.fromkeys(NPY_TYPES, _npy),
    **dict.fromkeys(IMAGE_TYPES, _image),
}
