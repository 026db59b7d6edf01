"""Prediction payloads by their content type: JSON, `.npy`, images, texts and forms."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy.typing as npt
import orjson

from bundle import Columns, InputSpec, Scores
from service.errors import InputShapeError, InputTypeError, MalformedBodyError, UnsupportedMediaTypeError, kind_of
from service.inference.amounts import AMOUNTS, check_amounts
from service.inference.encoded import (
    Absent,
    carried_cells,
    decode_base64,
    decode_images,
    encode_rows,
    encode_scores,
    encode_texts,
)
from service.inference.inputs import NOTHING, Beyond, Encoder, check_rows
from service.inference.names import check_name
from service.inference.nested import array_of, has_booleans
from service.inference.per_row import NAMES, NOTHING_SAID, PER_ROW, PerRow
from service.operations.predicting import LARGE
from service.places import in_body
from service.rest.bodies import check_values
from service.rest.multipart import parts_of
from service.rest.npy import read_npy

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"
FORM_TYPE = "multipart/form-data"
NPY_TYPES = ("application/x-npy", "application/octet-stream")
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")
WRAPPED_TYPES = (*NPY_TYPES, *IMAGE_TYPES)
"""Content types whose bodies `parse` only wraps, whatever their size."""

_ARRAY_TYPES = (JSON_TYPE, *NPY_TYPES)
MEDIA_TYPES = {
    "image": (*_ARRAY_TYPES, *IMAGE_TYPES, FORM_TYPE),
    "tokens": (*_ARRAY_TYPES, TEXT_TYPE, FORM_TYPE),
    "array": _ARRAY_TYPES,
    "tensors": (JSON_TYPE, TEXT_TYPE, FORM_TYPE),
    "scores": (JSON_TYPE,),
}
"""Content types that a model accepts, by the kind of its input."""

_FIELDS = ("inputs", *PER_ROW)
_PER_VALUE: Final = 4  # commas and brackets of a number in the deepest nesting, twice
_PER_EXAMPLE: Final = 32  # and of an example besides its numbers: its names, say, with commas in them
_TEXT_PER_COMMA: Final = 8  # bytes of text, on average
_MOST_ECHOED: Final = 20
_OPTIONAL: Final = " and ".join([", ".join(f"`{name}`" for name in NAMES), f"`{AMOUNTS}`"])
_IN_QUERY: Final = ("policy", "top", "segment")


@dataclass(slots=True, eq=False)  # not frozen, like `Inference`
class Payload:
    """Content of a prediction request, never changed.

    Attributes:
        inputs: Input array, or encoded images, which take long to decode: see `array`.
        per_row: What else is said of each row.
        absent: Accepted missing and unknown values of table rows; None for other inputs.
    """

    inputs: npt.NDArray[Any] | list[bytes]
    per_row: PerRow = NOTHING_SAID
    absent: Absent | None = None

    def array(self, spec: InputSpec, *, max_pixels: int) -> npt.NDArray[Any]:
        """Return the inputs, decoded where they are images.

        Raises:
            InputValueError: An image cannot be used; `where` names it.
        """
        return decode_images(self.inputs, spec, max_pixels=max_pixels) if isinstance(self.inputs, list) else self.inputs


def parse(
    body: bytes,
    content_type: str | None,
    spec: InputSpec,
    encoder: Encoder | None = None,
    beyond: Beyond = NOTHING,
    *,
    max_rows: int,
) -> Payload:
    """Turn a body into a payload by its content type.

    Args:
        body: Body of the request.
        content_type: Its Content-Type; JSON by default.
        spec: Input of the model.
        encoder: Encoder of texts or table rows in the bundle of the model.
        beyond: Columns of its challengers.
        max_rows: Maximum number of images, texts or table rows. Arrays are checked later.

    Raises:
        UnsupportedMediaTypeError: The model does not accept the content type.
        MalformedBodyError: The body does not match its content type.
        InputError: The content cannot be used.
    """
    media_type = media_type_of(content_type)
    if media_type not in MEDIA_TYPES[spec.kind]:
        raise UnsupportedMediaTypeError(
            f"The model does not accept {media_type!r}.", found=media_type, expected=list(MEDIA_TYPES[spec.kind])
        )
    if media_type == JSON_TYPE:
        document = load_rows(body, spec, max_rows, beyond)
        return of_document(document, spec, encoder, max_rows, beyond, booleans=has_booleans(body))
    if media_type in NPY_TYPES:
        return Payload(read_npy(body, spec.dtype))
    if media_type == FORM_TYPE:
        return _form(body, content_type or "", spec, encoder, max_rows)
    if media_type == TEXT_TYPE:
        return Payload(encode_texts([_text(body, 0)], encoder))
    return Payload([body])


def media_type_of(content_type: str | None) -> str:
    """Return the media type of a Content-Type header in lower case; JSON by default.

    >>> media_type_of("Application/JSON; charset=utf-8"), media_type_of(None)
    ('application/json', 'application/json')
    """
    return (content_type or JSON_TYPE).partition(";")[0].strip().lower()


def load_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object, of rows: of two fields with one name, the last counts.

    Raises:
        MalformedBodyError: The body is not JSON (NaN and Infinity are not), or not an object.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedBodyError(
            f"The body is not valid JSON: {error}.",
            found=f"{len(body)} bytes",
            expected="a JSON object (NaN and Infinity are not JSON)",
        ) from error
    if not isinstance(document, dict):
        raise MalformedBodyError("The body must be a JSON object.", found=kind_of(document), expected="object")
    return document


def some_of(document: dict[str, Any]) -> list[str]:
    """Return the first names of a document, for an error."""
    return [name[:200] for name in sorted(islice(document, _MOST_ECHOED))]


def load_rows(body: bytes, spec: InputSpec, max_rows: int, beyond: Beyond = NOTHING) -> dict[str, Any]:
    """Parse a JSON object with examples of a model.

    Args:
        body: The body.
        spec: Input of the model.
        max_rows: Maximum number of examples.
        beyond: Columns of its challengers.

    Raises:
        MalformedBodyError: The body is not a JSON object.
        BodyTooLargeError: It has more values than `max_rows` examples.
    """
    if len(body) > LARGE:
        tensors = [tensor.shape for tensor in spec.tensors] or [spec.shape]
        values = sum(abs(math.prod(shape)) for shape in tensors) + len(beyond.known)
        most = max_rows * (_PER_VALUE * values + _PER_EXAMPLE)
        characters = sum(math.prod(tensor.shape) * tensor.length for tensor in spec.tensors if tensor.dtype == "string")
        text = len(body) if spec.kind == "tokens" else min(len(body), max_rows * characters)
        check_values(body, max(most, text // _TEXT_PER_COMMA))
    return load_json(body)


def check_fields(document: dict[str, Any], field: str) -> None:
    """Raise MalformedBodyError unless a body has the field of its rows, and no others than those that say more of them.

    Args:
        document: The body.
        field: The field of the rows.
    """
    fields = [field, *PER_ROW]
    unknown = document.keys() - set(fields)
    if unknown or field not in document:
        stray = min(unknown, default=None)
        raise MalformedBodyError(
            f"The body requires `{field}`; {_OPTIONAL} are optional. Other fields are refused.",
            where=in_body(field if stray is None else stray[:200]),
            found=some_of(document),
            expected=fields,
            remedy=f"Send `{stray}` as a query parameter: ?{stray}=…" if stray in _IN_QUERY else None,
        )


def of_document(
    document: dict[str, Any],
    spec: InputSpec,
    encoder: Encoder | None,
    max_rows: int,
    beyond: Beyond = NOTHING,
    *,
    booleans: bool = True,
) -> Payload:
    """Turn a JSON body into a payload.

    Args:
        document: The body.
        spec: Input of the model.
        encoder: Encoder of texts or table rows in the bundle of the model.
        max_rows: Maximum number of images, texts or table rows. Arrays are checked later.
        beyond: Columns of its challengers.
        booleans: Whether it may contain true or false. The check takes time.

    Raises:
        MalformedBodyError: A field is missing or unknown.
        InputError: The content cannot be used.
    """
    field = encoder.field if isinstance(encoder, Scores) else "inputs"
    check_fields(document, field)
    rows = document[field]
    if not isinstance(rows, list):
        raise InputTypeError(
            f"`{field}` must be an array.", where=in_body(field), found=kind_of(rows), expected="array"
        )
    if not rows:
        raise InputShapeError(
            f"The request has no {field}.", where=in_body(field), found=0, expected="at least 1 example"
        )
    names: dict[str, Any] = {key: _names(document[key], key) for key in NAMES if key in document}
    if AMOUNTS in document:
        names[AMOUNTS] = _amounts(document[AMOUNTS])
    per_row = PerRow(**names) if names else NOTHING_SAID
    if isinstance(encoder, Scores):
        check_rows(len(rows), max_rows)
        return Payload(encode_scores(rows, spec, encoder), per_row)
    first = type(rows[0])
    if first is str and spec.kind != "array":
        _check_alike(rows, str, max_rows)
        if spec.kind == "image":
            return Payload(decode_base64(rows), per_row)
        return Payload(encode_texts(rows, encoder), per_row)
    if first is dict and spec.kind in ("array", "tensors"):
        _check_alike(rows, dict, max_rows)
        absent: Absent = Counter()
        inputs = encode_rows(rows, spec, encoder, absent, beyond.known)
        if (carried := carried_cells(rows, beyond.carried)) is not None:
            per_row = PerRow(**names, carried=carried)
        return Payload(inputs, per_row, absent)
    if spec.kind == "tensors":
        raise InputTypeError(
            "The model takes rows of named values.",
            where=in_body("inputs", 0),
            found=kind_of(rows[0]),
            expected='an object: {"NAME": value, …}',
        )
    inputs = array_of(rows, spec, nan_is_missing=isinstance(encoder, Columns), booleans=booleans)
    return Payload(inputs, per_row)


def _check_alike(rows: list[Any], kind: type, max_rows: int) -> None:
    check_rows(len(rows), max_rows)
    for index, row in enumerate(rows):
        if type(row) is not kind:
            raise InputTypeError(
                "The inputs are not all of the same kind.",
                where=in_body("inputs", index),
                found=kind_of(row),
                expected=f"{kind_of(kind())}, like the first input",
            )


def _form(body: bytes, content_type: str, spec: InputSpec, encoder: Encoder | None, max_rows: int) -> Payload:
    fields: dict[str, list[bytes]] = {name: [] for name in _FIELDS}
    for part in parts_of(body, content_type, max_parts=len(_FIELDS) * max_rows):
        if part.name not in fields:
            raise MalformedBodyError(
                f"Unknown form field. Repeat {_OPTIONAL} as often as `inputs`.",
                where=in_body(part.name[:200]),
                found=part.name[:200],
                expected=list(_FIELDS),
            )
        fields[part.name].append(part.data)
    inputs = fields["inputs"]
    if not inputs:
        raise InputShapeError(
            "The request has no inputs.", where=in_body("inputs"), found=0, expected="at least 1 part `inputs`"
        )
    check_rows(len(inputs), max_rows)
    names: dict[str, Any] = {
        key: _names([_text(data, index, key) for index, data in enumerate(fields[key])], key)
        for key in NAMES
        if fields[key]
    }
    if fields[AMOUNTS]:
        names[AMOUNTS] = _amounts([_number(data, index) for index, data in enumerate(fields[AMOUNTS])])
    per_row = PerRow(**names) if names else NOTHING_SAID
    if spec.kind == "image":
        return Payload(inputs, per_row)
    texts = [_text(data, index) for index, data in enumerate(inputs)]
    return Payload(encode_texts(texts, encoder), per_row)


def _text(data: bytes, index: int, key: str = "inputs") -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedBodyError(
            f"The text is not UTF-8: {error.reason} at byte {error.start}.",
            where=in_body(key, index),
            found=f"byte 0x{data[error.start]:02x}",
            expected="text in UTF-8",
        ) from None


def _number(data: bytes, index: int) -> Any:
    """Return an amount of a form: a JSON number, or nothing."""
    if not data:
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise InputTypeError(
            "An amount must be a number.",
            where=in_body(AMOUNTS, index),
            found=data[:100].decode(errors="replace"),
            expected="a number such as 12.50, or nothing",
        ) from None


def _amounts(value: Any) -> list[float | None] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise InputTypeError(
            "`amounts` must be an array of numbers.", where=in_body(AMOUNTS), expected="array of numbers or nulls"
        )
    return check_amounts(value, in_body(AMOUNTS))


def _names(value: Any, key: str) -> list[str | None] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(name is None or isinstance(name, str) for name in value):
        raise InputTypeError(
            f"`{key}` must be an array of strings.", where=in_body(key), expected="array of strings or nulls"
        )
    for index, name in enumerate(value):
        if name is not None:
            check_name(name, f"Entries of `{key}` have", in_body(key, index))
    return value
