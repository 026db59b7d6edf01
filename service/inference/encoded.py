"""Encode images, texts and table rows as inputs of a model. Errors name the row."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bundle import Columns, ImageError, InputSpec, RowError, Scores, Tokenizer, Vocabulary, tensors
from bundle.images import decode_image, pixels_of
from bundle.table import Cell
from service.errors import InputTypeError, InputValueError, kind_of
from service.inference.inputs import Encoder
from service.places import in_body

T = TypeVar("T")
R = TypeVar("R")
Absent = Counter[tuple[str, str]]
"""Accepted values of a table by column and "missing" or "unknown"."""

_MOST_NAMES = 100  # of columns, in an error
_CELL_TYPES = frozenset({str, int, float, type(None)})
_CARRIED_TYPES = _CELL_TYPES | {bool}


def decode_images(encoded: Sequence[bytes], spec: InputSpec, *, max_pixels: int) -> npt.NDArray[np.uint8]:
    """Return encoded images as a batch uint8 (N, H, W, C).

    Args:
        encoded: PNG, JPEG or WebP files, at least one.
        spec: Input of the model; its kind must be `image`.
        max_pixels: Maximum pixels of all images together, checked before decoding. An image smaller than the input of
            the model counts as large as that input, because it is resized to it.

    Raises:
        InputValueError: An image cannot be read, has the wrong size, or exceeds the pixel limit.
    """
    smallest = spec.shape[0] * spec.shape[1]
    total = 0
    for row, data in enumerate(encoded):
        if len(encoded) > 1:  # the decoder checks a single image itself
            with _named(row):
                total += max(smallest, pixels_of(data))
        if total > max_pixels:
            raise InputValueError(
                "The images together have too many pixels.",
                where=in_body("inputs", row),
                found=f"{total} pixels up to this one",
                expected=f"at most {max_pixels}",
                remedy="Send fewer images at once, or raise CANDOR_MAX_PIXELS.",
            )
    batch = np.empty((len(encoded), *spec.shape), np.uint8)
    for row, data in enumerate(encoded):
        with _named(row):
            batch[row] = decode_image(data, spec, max_pixels=max_pixels)
    return batch


def decode_base64(rows: Sequence[str]) -> list[bytes]:
    """Decode files sent as base64 in JSON, with or without the prefix `data:image/…;base64,`.

    Raises:
        InputValueError: A text is not valid base64.
    """
    files = []
    for row, text in enumerate(rows):
        data = text.partition(",")[2] if text.startswith("data:") else text
        try:
            files.append(base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError) as error:
            raise InputValueError(
                f"The image is not base64: {error}.",
                where=in_body("inputs", row),
                found=text[:40],
                expected="a PNG, JPEG or WebP file in base64 (RFC 4648, section 4)",
            ) from None
    return files


def encode_texts(texts: Sequence[str], encoder: Encoder | None) -> npt.NDArray[Any]:
    """Return texts as the model takes them, by the vocabulary or tokenizer in its bundle.

    Raises:
        InputTypeError: The bundle has neither.
        InputValueError: The tokenizer fails on a text.
    """
    if not isinstance(encoder, Vocabulary | Tokenizer):
        raise InputTypeError(
            "The model does not accept texts: its bundle has no vocabulary.",
            where=in_body("inputs", 0),
            found="a text",
            expected="token ids",
            remedy="Send arrays of token ids, or export the bundle with its vocabulary.",
        )
    return by_row(texts, encoder.encode)


def encode_rows(
    rows: Sequence[Mapping[str, Any]],
    spec: InputSpec,
    encoder: Encoder | None,
    absent: Absent | None = None,
    also: Set[str] = frozenset(),
) -> npt.NDArray[Any]:
    """Return rows of named values as the model takes them: columns of a table, or the tensors of a graph.

    Table columns left out or null count as missing. `absent` counts the missing and unknown values that are accepted,
    and unknown columns in `also` are ignored.

    Raises:
        InputTypeError: The model has neither columns nor tensors, or a cell is neither number, text nor null.
        InputValueError: A row has an unknown column, or a value that its column or tensor does not accept.
    """
    if spec.kind == "tensors" and not isinstance(encoder, Columns):
        return by_row(rows, partial(tensors.encode, spec=spec))
    if not isinstance(encoder, Columns):
        raise InputTypeError(
            "The model does not accept rows by column name: its bundle has no columns.",
            where=in_body("inputs", 0),
            found="an object",
            expected="an array of numbers",
            remedy="Send arrays of numbers, or export the bundle with its columns.",
        )
    known = encoder.kinds
    for index, row in enumerate(rows):
        for name in () if known.keys() >= row.keys() else row.keys() - known.keys() - also:
            raise InputValueError(
                "Unknown column.",
                where=in_body("inputs", index),
                found=name[:200],
                expected=[column.name for column in encoder.columns[:_MOST_NAMES]],
                remedy="Remove the column or correct its name. A column left out counts as missing.",
            )
        if _CELL_TYPES.issuperset(map(type, row.values())):
            continue
        for name, value in row.items():
            if name not in known or type(value) in _CELL_TYPES:
                continue
            if not (known[name] == "number" and isinstance(value, bool)):
                raise InputTypeError(
                    f"The value of column {name!r} has an unsupported type.",
                    where=in_body("inputs", index),
                    found=kind_of(value),
                    expected="a number, a text, or null for a missing value",
                )
    return by_row(rows, partial(encoder.encode, spec=spec, absent=absent))


def carried_cells(rows: Sequence[Mapping[str, Any]], names: Set[str]) -> list[dict[str, Cell]] | None:
    """Return the cells of some columns of each row, as far as it has them; None without any.

    Example:
        >>> carried_cells([{"age": 41, "income": 3.5}, {"age": 20}], {"income"})
        [{'income': 3.5}, {}]
    """
    if not names:
        return None
    cells = [{name: row[name] for name in row.keys() & names if type(row[name]) in _CARRIED_TYPES} for row in rows]
    return cells if any(cells) else None


def absent_in(inputs: npt.NDArray[Any], columns: Columns) -> Mapping[tuple[str, str], int]:
    """Return the missing and unknown values in an array (…, F) of accepted rows, as a client sent it.

    They are by column and "missing" (NaN, and the code of absent categories) or "unknown" (no code of the column).
    """
    if columns.requires_all:
        return {}
    rows = inputs.reshape(-1, len(columns))
    found: Counter[tuple[str, str]] = Counter()
    for reason, which in (("missing", columns.missing_in(rows)), ("unknown", columns.unknown_in(rows))):
        if which is not None and np.count_nonzero(which):
            counts = zip(columns.columns, which.sum(axis=0).tolist(), strict=True)
            found.update({(column.name, reason): count for column, count in counts if count})
    return found


def encode_scores(scores: Sequence[Any], spec: InputSpec, encoder: Scores) -> npt.NDArray[np.float32]:
    """Return the logits (N, K) that the scores of a request stand for.

    Raises:
        InputValueError: A row is not scores of such a model.
    """
    return by_row(scores, partial(encoder.logits, classes=spec.shape[0]), encoder.field)


def by_row(
    rows: Sequence[T] | npt.NDArray[Any],
    encode: Callable[[Any], R],
    field: str = "inputs",
) -> R:
    """Encode all rows at once; on an error, find the first faulty row for its place.

    Args:
        rows: Rows, or values of a column.
        encode: Encodes any number of them.
        field: Field of the body that holds them.

    Raises:
        InputValueError: A row is refused; `where` names it.
    """
    try:
        return encode(rows)
    except RowError:
        for index in range(len(rows)):
            with _named(index, field):
                encode(rows[index : index + 1])
        raise


@contextmanager
def _named(row: int, field: str = "inputs") -> Iterator[None]:
    """Turn an error of the bundle into one that names the row.

    Raises:
        InputValueError: The reader raised an error of the bundle.
    """
    try:
        yield
    except (ImageError, RowError) as error:
        raise _refusal(error, row, field) from error  # a name for it here would make a cycle that keeps the inputs


def _refusal(error: ImageError | RowError, row: int, field: str) -> InputValueError:
    refusal = InputValueError(
        f"{error.message[0].upper()}{error.message[1:]}.",
        where=in_body(field, row),
        found=error.found,
        expected=error.expected,
    )
    if isinstance(error, RowError):
        refusal.refused = error.refused
    return refusal
