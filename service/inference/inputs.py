"""Fit arrays to the input of a model, or refuse them with the exact reason."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Set
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bundle import Bundle, Columns, InputSpec, Scores, Tokenizer, Vocabulary
from bundle.manifest import ENCODER_FILES
from service.errors import InputShapeError, InputTypeError, InputValueError
from service.places import in_body

Encoder = Vocabulary | Tokenizer | Columns | Scores
"""Encoder in a bundle: of texts, of table rows, or of scores."""


class Beyond(NamedTuple):
    """Columns of a model's challengers.

    Attributes:
        known: Those that a row of the active revision may have without being refused.
        carried: Those that such a row keeps for them: the inputs of the active revision do not tell them.
    """

    known: Set[str]
    carried: Set[str]


NOTHING: Final = Beyond(frozenset(), frozenset())

_UINT8_MAX = 255
_FEW = 4096  # values


def conform(
    inputs: npt.NDArray[Any], spec: InputSpec, encoder: Encoder | None = None, *, encoded: bool = False
) -> npt.NDArray[Any]:
    """Return `inputs` as (N, *spec.shape) in the dtype of the model, C-contiguous.

    A single example may lack the batch axis, and a single channel the last axis. Models of uint8 and int32 accept
    integers of any width whose values fit, models of floats integers and floats of any width. Values are neither
    rounded nor clipped. NaN means a missing value in table rows and is refused elsewhere. In a column of categories, a
    number that is not a code counts as an unknown category. NaN and such numbers become the code of absent categories.

    Args:
        inputs: Array of any dtype and shape.
        spec: Input of the model.
        encoder: Encoder in the bundle of the model. Table columns allow missing values.
        encoded: Whether `encoder` made the inputs of table rows, and so has applied the rules of the columns.

    Raises:
        InputShapeError: The shape fits neither one example nor a batch, or the batch is empty.
        InputTypeError: The dtype cannot be converted without loss.
        InputValueError: A value is NaN, infinite or out of range, a column requires one, or refuses unknown
            categories; `where` names the row.
    """
    if spec.kind == "tensors":
        return _as_records(inputs, spec)
    batch = _as_batch(inputs, spec.shape)
    columns = encoder if isinstance(encoder, Columns) and not encoded else None
    if batch.dtype == spec.dtype and (columns is None or columns.numeric) and _all_finite(batch):
        return np.ascontiguousarray(batch)
    fitting = _as_dtype(batch, spec.dtype, nan_is_missing=isinstance(encoder, Columns))
    if columns is None:
        return fitting
    _refuse_missing(fitting, columns)
    uncoded = columns.uncoded_in(fitting)
    if uncoded is None:
        return fitting
    _refuse_unknown(fitting, uncoded & ~np.isnan(fitting), columns)
    return np.where(uncoded, columns.absent, fitting).astype(spec.dtype)


def specification(bundle: Bundle) -> str:
    """Return a digest of the meaning of inputs, 16 hexadecimal digits: equal for models with interchangeable inputs.

    It covers type and shape of the arrays, and the vocabulary, tokenizer or table columns.
    """
    manifest = bundle.manifest
    unsaid = {"resize"} if manifest.input.tensors else {"resize", "tensors"}  # digests of older versions stay
    parts = [manifest.input.model_dump_json(exclude=unsaid)]
    parts += [f"{name} {digest}" for name, digest in sorted(manifest.files.items()) if name in ENCODER_FILES]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def check_rows(count: int, most: int) -> None:
    """Raise InputShapeError if a request has too many rows."""
    if count > most:
        raise InputShapeError(
            "Too many inputs in one request.",
            where=in_body("inputs"),
            found=count,
            expected=f"at most {most}",
            remedy="Split the request, or raise CANDOR_MAX_ROWS_PER_REQUEST.",
        )


def _as_records(inputs: npt.NDArray[Any], spec: InputSpec) -> npt.NDArray[Any]:
    if inputs.dtype != spec.numpy:
        raise InputTypeError(
            "The model takes several named tensors.",
            where=in_body("inputs"),
            found=str(inputs.dtype),
            expected=[tensor.name for tensor in spec.tensors],
            remedy='Send one object per row: {"inputs": [{"NAME": …}]}.',
        )
    return _as_batch(inputs, ())


def _as_batch(inputs: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    without_last = shape[:-1] if shape and shape[-1] == 1 else shape
    if inputs.shape in (shape, without_last):
        inputs = inputs[None]
    if inputs.shape[1:] not in (shape, without_last):
        raise InputShapeError(
            f"The model takes examples of shape {list(shape)}.",
            where=in_body("inputs", 0),
            found=list(inputs.shape[1:]),
            expected=list(shape),
            remedy="Send one example of that shape, or a batch with one more axis in front.",
        )
    if len(inputs) == 0:
        raise InputShapeError(
            "The request has no inputs.", where=in_body("inputs"), found=0, expected="at least 1 example"
        )
    return inputs.reshape(len(inputs), *shape)


def _as_dtype(inputs: npt.NDArray[Any], dtype: str, *, nan_is_missing: bool) -> npt.NDArray[Any]:
    if inputs.dtype == dtype:
        if dtype in ("float32", "float64"):
            _refuse_non_finite(inputs, nan_is_missing=nan_is_missing)
        return np.ascontiguousarray(inputs)
    kind = inputs.dtype.kind
    if kind in "iu" and dtype in ("uint8", "int32"):
        limits = np.iinfo(dtype)
        outside = (inputs < limits.min) | (inputs > limits.max)
        if outside.any():
            row = _first_row(outside)
            raise InputValueError(
                f"Values must be integers from {limits.min} to {limits.max}.",
                where=in_body("inputs", row),
                found=int(inputs[row][outside[row]].flat[0]),
                expected=f"{limits.min} to {limits.max}",
            )
        return np.ascontiguousarray(inputs, dtype=dtype)
    if kind in "iuf" and dtype in ("float32", "float64"):
        _refuse_non_finite(inputs, nan_is_missing=nan_is_missing)
        with np.errstate(over="ignore"):
            narrowed = np.ascontiguousarray(inputs, dtype=dtype)
        _refuse_non_finite(narrowed, nan_is_missing=nan_is_missing)
        return narrowed
    raise InputTypeError(
        f"The model takes {dtype}.",
        where=in_body("inputs"),
        found=str(inputs.dtype) if kind != "O" else "values that are not numbers",
        expected=dtype,
        remedy=f"Send integers from 0 to {_UINT8_MAX}." if dtype == "uint8" else f"Send {dtype} values.",
    )


def _all_finite(values: npt.NDArray[Any]) -> bool:
    """Return whether these are floats, few, finite and of usual size: one product tells, sooner than a look at each."""
    return values.size <= _FEW and values.dtype.kind == "f" and math.isfinite(np.vdot(values, values))


def _refuse_non_finite(inputs: npt.NDArray[Any], *, nan_is_missing: bool) -> None:
    if inputs.dtype.kind != "f":
        return
    wrong = np.isinf(inputs) if nan_is_missing else ~np.isfinite(inputs)
    if np.count_nonzero(wrong):  # takes half the time of `any`
        row = _first_row(wrong)
        raise InputValueError(
            f"Inputs must be finite {inputs.dtype} numbers.",
            where=in_body("inputs", row),
            found=str(inputs[row][wrong[row]].flat[0]),
            expected="finite numbers, or NaN for a missing value" if nan_is_missing else "finite numbers",
        )


def _refuse_missing(inputs: npt.NDArray[Any], columns: Columns) -> None:
    """Refuse rows with NaN, or with the code of an absent category, in a column that requires a value."""
    if not columns.requires:
        return
    missing = (columns.missing_in(inputs) & columns.required) | (np.isnan(inputs) & columns.refuses_nan)
    if np.count_nonzero(missing):
        row = _first_row(missing)
        place = int(missing[row].argmax())
        column, found = columns.columns[place], inputs[row, place]
        refusal = InputValueError(
            f"Column {column.name!r} requires a value.",
            where=in_body("inputs", row),
            found="NaN" if np.isnan(found) else str(found),
            expected="a number" if column.kind == "number" else "the code of a category",
        )
        refusal.refused = column.name, "missing"
        raise refusal


def _refuse_unknown(inputs: npt.NDArray[Any], unknown: npt.NDArray[np.bool_], columns: Columns) -> None:
    """Refuse rows with a number that is not a code, in a column that refuses unknown categories."""
    refused = unknown & columns.refuses_unknown
    if refused.any():
        row = _first_row(refused)
        place = int(refused[row].argmax())
        column = columns.columns[place]
        last = column.first_code + len(column.categories or ()) - 1
        refusal = InputValueError(
            f"Column {column.name!r} has an unknown category.",
            where=in_body("inputs", row),
            found=float(inputs[row, place]),
            expected=f"the code of a category, {column.first_code} to {last}",
            remedy="GET /v1/models lists the categories in the order of their codes; objects take the categories.",
        )
        refusal.refused = column.name, "unknown"
        raise refusal


def _first_row(wrong: npt.NDArray[np.bool_]) -> int:
    return int(np.argmax(wrong.reshape(len(wrong), -1).any(axis=1)))
