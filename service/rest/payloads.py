"""Prediction payloads by their content type: JSON, `.npy`, images, texts and forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import orjson

from bundle import Columns, InputSpec
from service.errors import (
    InputShapeError,
    InputTypeError,
    InputValueError,
    MalformedBodyError,
    UnsupportedMediaTypeError,
)
from service.inference.inputs import Encoder, check_rows
from service.rest.encoded import decode_base64, encode_rows, encode_texts
from service.rest.multipart import parts_of
from service.rest.nested import array_of
from service.rest.npy import read_npy

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"
FORM_TYPE = "multipart/form-data"
NPY_TYPES = ("application/x-npy", "application/octet-stream")
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")
_ARRAY_TYPES = (JSON_TYPE, *NPY_TYPES)
MEDIA_TYPES = {
    "image": (*_ARRAY_TYPES, *IMAGE_TYPES, FORM_TYPE),
    "tokens": (*_ARRAY_TYPES, TEXT_TYPE, FORM_TYPE),
    "array": _ARRAY_TYPES,
}
"""What a model reads, by the kind of its input."""

LONGEST_NAME = 200
_JSON_NAMES = {
    "str": "a string",
    "dict": "an object",
    "list": "an array",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "NoneType": "null",
}
_NAMES = ("references", "groups", "segments")
_FIELDS = ("inputs", *_NAMES)


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """What a predict request carries.

    Attributes:
        inputs: Array as it came, or as texts or rows were encoded; or a list of encoded images, whose decoding takes
            long and is left to whoever has a thread for it.
        references: The client's own name of each row, if given.
        groups: What each row belongs to, if given.
        segments: The part of the traffic that each row belongs to, if given.
    """

    inputs: npt.NDArray[Any] | list[bytes]
    references: list[str | None] | None = None
    groups: list[str | None] | None = None
    segments: list[str | None] | None = None


def parse(
    body: bytes, content_type: str | None, spec: InputSpec, encoder: Encoder | None = None, *, max_rows: int
) -> Payload:
    """Turn a body into a payload by its content type.

    Args:
        body: The bytes that came.
        content_type: The header that came with them; JSON where there was none.
        spec: The model's input.
        encoder: What the model's bundle carries to read texts or rows of a table with.
        max_rows: Images, texts or rows that one request may have; of arrays their reader says.

    Raises:
        UnsupportedMediaTypeError: The content type is none that the model reads.
        MalformedBodyError: The bytes are not what the content type says.
        InputError: They are, and cannot be used.
    """
    media_type = media_type_of(content_type)
    if media_type not in MEDIA_TYPES[spec.kind]:
        raise UnsupportedMediaTypeError(
            f"This model does not read {media_type!r}.", found=media_type, expected=list(MEDIA_TYPES[spec.kind])
        )
    if media_type == JSON_TYPE:
        return _json(body, spec, encoder, max_rows)
    if media_type in NPY_TYPES:
        return Payload(read_npy(body, spec.dtype))
    if media_type == FORM_TYPE:
        return _form(body, content_type or "", spec, encoder, max_rows)
    if media_type == TEXT_TYPE:
        return Payload(encode_texts([_text(body, 0)], encoder))
    return Payload([body])


def media_type_of(content_type: str | None) -> str:
    """Return the media type of a Content-Type header, in lower case; JSON where there is none.

    >>> media_type_of("Application/JSON; charset=utf-8"), media_type_of(None)
    ('application/json', 'application/json')
    """
    return (content_type or JSON_TYPE).partition(";")[0].strip().lower()


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


def _json(body: bytes, spec: InputSpec, encoder: Encoder | None, max_rows: int) -> Payload:
    document = load_json(body)
    unknown = sorted(document.keys() - set(_FIELDS))
    if unknown or "inputs" not in document:
        raise MalformedBodyError(
            "The body needs `inputs`, and may have `references`, `groups` and `segments`.",
            where=f"/{unknown[0]}" if unknown else "/inputs",
            found=sorted(document),
            expected=list(_FIELDS),
        )
    rows = document["inputs"]
    if not isinstance(rows, list):
        raise InputTypeError("`inputs` must be an array.", where="/inputs", found=type(rows).__name__, expected="array")
    if not rows:
        raise InputShapeError("There are no inputs.", where="/inputs", found=0, expected="at least 1 example")
    names = {key: _names(document[key], key) for key in _NAMES if key in document}
    first = type(rows[0])
    if first is str and spec.kind != "array":
        _check_alike(rows, str, max_rows)
        if spec.kind == "image":
            return Payload(decode_base64(rows), **names)
        return Payload(encode_texts(rows, encoder), **names)
    if first is dict and spec.kind == "array":
        _check_alike(rows, dict, max_rows)
        return Payload(encode_rows(rows, encoder), **names)
    booleans = b"true" in body or b"false" in body  # nothing else makes one
    inputs = array_of(rows, spec, nan_is_missing=isinstance(encoder, Columns), booleans=booleans)
    return Payload(inputs, **names)


def _check_alike(rows: list[Any], kind: type, max_rows: int) -> None:
    check_rows(len(rows), max_rows)
    for index, row in enumerate(rows):
        if type(row) is not kind:
            raise InputTypeError(
                "The inputs are not all of one kind.",
                where=f"/inputs/{index}",
                found=_JSON_NAMES[type(row).__name__],
                expected=f"{_JSON_NAMES[kind.__name__]}, as the first is",
            )


def _form(body: bytes, content_type: str, spec: InputSpec, encoder: Encoder | None, max_rows: int) -> Payload:
    fields: dict[str, list[bytes]] = {name: [] for name in _FIELDS}
    for part in parts_of(body, content_type, max_parts=len(_FIELDS) * max_rows):
        if part.name not in fields:
            raise MalformedBodyError(
                "A form has the fields `inputs`, `references`, `groups` and `segments`, each as often as `inputs`.",
                where=f"/{part.name[:200]}",
                found=part.name[:200],
                expected=list(_FIELDS),
            )
        fields[part.name].append(part.data)
    inputs = fields["inputs"]
    if not inputs:
        raise InputShapeError("There are no inputs.", where="/inputs", found=0, expected="at least 1 part `inputs`")
    check_rows(len(inputs), max_rows)
    names = {
        key: _names([_text(data, index, key) for index, data in enumerate(fields[key])], key)
        for key in _NAMES
        if fields[key]
    }
    if spec.kind == "image":
        return Payload(inputs, **names)
    texts = [_text(data, index) for index, data in enumerate(inputs)]
    return Payload(encode_texts(texts, encoder), **names)


def _text(data: bytes, index: int, key: str = "inputs") -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedBodyError(
            f"The text is not UTF-8: {error.reason} at byte {error.start}.",
            where=f"/{key}/{index}",
            found=f"byte 0x{data[error.start]:02x}",
            expected="text in UTF-8",
        ) from None


def _names(value: Any, key: str) -> list[str | None] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(name is None or isinstance(name, str) for name in value):
        raise InputTypeError(
            f"`{key}` must be an array of strings.", where=f"/{key}", expected="array of strings or nulls"
        )
    for index, name in enumerate(value):
        if name is not None:
            check_name(name, f"Entries of `{key}` have", f"/{key}/{index}")
    return value


def check_name(name: str, who: str, where: str) -> str:
    """Return a client's own name of something, as every database stores it.

    Args:
        name: The name.
        who: What has such names, with its verb, for the message.
        where: Where it stands.

    Raises:
        InputValueError: It is empty, longer than `LONGEST_NAME`, or has a NUL.
    """
    if not 0 < len(name) <= LONGEST_NAME or "\0" in name:
        raise InputValueError(
            f"{who} 1 to {LONGEST_NAME} characters, none of them NUL.",
            where=where,
            found=f"{len(name)} characters" + ", with a NUL" * ("\0" in name),
            expected=f"1 to {LONGEST_NAME} characters without NUL",
        )
    return name
