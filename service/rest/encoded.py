"""Images, texts and rows of a table to the model's input, each named by its place when it is at fault."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from bundle import Columns, ImageError, InputSpec, RowError, Vocabulary
from bundle.images import decode_image, pixels_of
from service.errors import InputTypeError, InputValueError
from service.inference.inputs import Encoder

P = ParamSpec("P")
T = TypeVar("T")

_MOST_NAMES = 100  # of columns, in an error
_CELL_TYPES = frozenset({str, int, float, type(None)})


def decode_images(encoded: Sequence[bytes], spec: InputSpec, *, max_pixels: int) -> npt.NDArray[np.uint8]:
    """Return encoded images as a batch uint8 (N, H, W, C).

    Args:
        encoded: PNG, JPEG or WebP files, at least one.
        spec: The model's input; its kind must be `image`.
        max_pixels: Pixels that all of them may have together, summed up before the first is decoded. One that is
            smaller than the model's input counts as that large, because that is what becomes of it.

    Raises:
        InputValueError: One cannot be read, is of another size, or there are too many pixels; `where` names it.
    """
    smallest = spec.shape[0] * spec.shape[1]
    total = 0
    for row, data in enumerate(encoded):
        if len(encoded) > 1:  # of a single one the decoder itself says so
            total += max(smallest, _named(row, pixels_of, data))
        if total > max_pixels:
            raise InputValueError(
                "The images have too many pixels together.",
                where=f"/inputs/{row}",
                found=f"{total} pixels up to this one",
                expected=f"at most {max_pixels}",
                remedy="Send fewer images at once, or raise CANDOR_MAX_PIXELS.",
            )
    batch = np.empty((len(encoded), *spec.shape), np.uint8)
    for row, data in enumerate(encoded):
        batch[row] = _named(row, decode_image, data, spec, max_pixels=max_pixels)
    return batch


def decode_base64(rows: Sequence[str]) -> list[bytes]:
    """Return files that were sent as base64 in JSON, with or without `data:image/…;base64,` before it.

    Raises:
        InputValueError: One is not base64.
    """
    files = []
    for row, text in enumerate(rows):
        data = text.partition(",")[2] if text.startswith("data:") else text
        try:
            files.append(base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError) as error:
            raise InputValueError(
                f"The image is not base64: {error}.",
                where=f"/inputs/{row}",
                found=text[:40],
                expected="a PNG, JPEG or WebP file in base64 (RFC 4648, section 4)",
            ) from None
    return files


def encode_texts(texts: Sequence[str], encoder: Encoder | None) -> npt.NDArray[np.int32]:
    """Return texts as tokens int32 (N, L) by the vocabulary that the model's bundle carries.

    Raises:
        InputTypeError: The bundle carries none.
    """
    if not isinstance(encoder, Vocabulary):
        raise InputTypeError(
            "The model's bundle has no vocabulary to read texts with.",
            where="/inputs/0",
            found="a text",
            expected="token ids",
            remedy="Send arrays of token ids, or export the bundle with its vocabulary.",
        )
    return encoder.encode(texts)


def encode_rows(rows: Sequence[Mapping[str, Any]], encoder: Encoder | None) -> npt.NDArray[np.float32]:
    """Return rows of a table, by column name, as float32 (N, F). What a row leaves out, or names null, is missing.

    Raises:
        InputTypeError: The bundle knows no columns, or a value is neither number, text nor null.
        InputValueError: A row names a column that the model does not take, or has text where a number belongs.
    """
    if not isinstance(encoder, Columns):
        raise InputTypeError(
            "The model's bundle has no columns to read rows by their names with.",
            where="/inputs/0",
            found="an object",
            expected="an array of numbers",
            remedy="Send arrays of numbers, or export the bundle with its columns.",
        )
    known = {column.name for column in encoder.columns}
    for index, row in enumerate(rows):
        for name in row.keys() - known:
            raise InputValueError(
                "The model takes no such column.",
                where=f"/inputs/{index}",
                found=name[:200],
                expected=[column.name for column in encoder.columns[:_MOST_NAMES]],
                remedy="Leave it out, or correct its name; a column that is left out counts as missing.",
            )
        for name, value in row.items():
            if type(value) not in _CELL_TYPES:
                raise InputTypeError(
                    f"The value of column {name!r} is none that a table has.",
                    where=f"/inputs/{index}",
                    found=type(value).__name__,
                    expected="a number, a text, or null for what is missing",
                )
    try:
        return encoder.encode(rows)
    except RowError:
        for index, row in enumerate(rows):  # said of the first row that is to blame
            _named(index, encoder.encode, [row])
        raise


def _named(row: int, read: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Call what reads one row, and name the row in the error that it raises.

    Raises:
        InputValueError: It raised one of the bundle's errors.
    """
    try:
        return read(*arguments, **options)
    except (ImageError, RowError) as error:
        raise InputValueError(
            f"{error.message[0].upper()}{error.message[1:]}.",
            where=f"/inputs/{row}",
            found=error.found,
            expected=error.expected,
        ) from error
