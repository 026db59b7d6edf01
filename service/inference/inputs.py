"""Make arrays fit a model's input, or say exactly why they do not."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from bundle import Bundle, Columns, InputSpec, Vocabulary
from bundle.manifest import OPTIONAL_FILES
from service.errors import InputShapeError, InputTypeError, InputValueError

Encoder = Vocabulary | Columns
"""What a bundle carries to make inputs of texts, or of a table's rows."""

_UINT8_MAX = 255


def conform(inputs: npt.NDArray[Any], spec: InputSpec, encoder: Encoder | None = None) -> npt.NDArray[Any]:
    """Return `inputs` as (N, *spec.shape) in the model's dtype, C-contiguous.

    One example without its batch axis is taken as a batch of one, and the last axis may be left out where it is a
    single channel. Integers of any width are taken for uint8 and int32 models when their values fit, integers and
    floats of any width for float32 models. Nothing is rounded and nothing is clipped. In a table's row NaN is a value
    that is missing; everywhere else it is refused.

    Args:
        inputs: Array of any dtype and shape.
        spec: The model's input.
        encoder: What the model's bundle carries beside it; a table's columns let values be missing.

    Raises:
        InputShapeError: The shape fits neither one example nor a batch, or the batch is empty.
        InputTypeError: The dtype cannot be taken without loss.
        InputValueError: A value is NaN, infinite or out of range; `where` names the row.
    """
    return _as_dtype(_as_batch(inputs, spec.shape), spec.dtype, nan_is_missing=isinstance(encoder, Columns))


def specification(bundle: Bundle) -> str:
    """Return what a bundle's inputs mean, as 16 hexadecimal digits: equal for two models that take each other's inputs.

    It covers the arrays' type and shape, and the vocabulary or the table's columns that make them.
    """
    manifest = bundle.manifest
    parts = [manifest.input.model_dump_json(exclude={"resize"})]
    parts += [f"{name} {digest}" for name, digest in sorted(manifest.files.items()) if name in OPTIONAL_FILES]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def check_rows(count: int, most: int) -> None:
    """Raise InputShapeError where a request has more rows than it may."""
    if count > most:
        raise InputShapeError(
            "Too many inputs in one request.",
            where="/inputs",
            found=count,
            expected=f"at most {most}",
            remedy="Send several requests, or raise CANDOR_MAX_ROWS_PER_REQUEST.",
        )


def _as_batch(inputs: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if inputs.shape == shape or (shape[-1] == 1 and inputs.shape == shape[:-1]):
        inputs = inputs[None]
    if inputs.shape[1:] != shape and not (shape[-1] == 1 and inputs.shape[1:] == shape[:-1]):
        raise InputShapeError(
            f"The model takes examples of shape {list(shape)}.",
            where="/inputs/0",
            found=list(inputs.shape[1:]),
            expected=list(shape),
            remedy="Send one example of that shape, or a batch of them with one more axis in front.",
        )
    if len(inputs) == 0:
        raise InputShapeError("There are no inputs.", where="/inputs", found=0, expected="at least 1 example")
    return inputs.reshape(len(inputs), *shape)


def _as_dtype(inputs: npt.NDArray[Any], dtype: str, *, nan_is_missing: bool) -> npt.NDArray[Any]:
    if inputs.dtype == dtype:
        if dtype == "float32":
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
                where=f"/inputs/{row}",
                found=int(inputs[row][outside[row]].flat[0]),
                expected=f"{limits.min} to {limits.max}",
            )
        return np.ascontiguousarray(inputs, dtype=dtype)
    if kind in "iuf" and dtype == "float32":
        _refuse_non_finite(inputs, nan_is_missing=nan_is_missing)
        with np.errstate(over="ignore"):
            narrowed = np.ascontiguousarray(inputs, dtype=np.float32)
        _refuse_non_finite(narrowed, nan_is_missing=nan_is_missing)
        return narrowed
    raise InputTypeError(
        f"The model takes {dtype}.",
        where="/inputs",
        found=str(inputs.dtype) if kind != "O" else "values that are not numbers",
        expected=dtype,
        remedy=f"Send integers from 0 to {_UINT8_MAX}." if dtype == "uint8" else f"Send {dtype} values.",
    )


def _refuse_non_finite(inputs: npt.NDArray[Any], *, nan_is_missing: bool) -> None:
    if inputs.dtype.kind != "f":
        return
    wrong = np.isinf(inputs) if nan_is_missing else ~np.isfinite(inputs)
    if wrong.any():
        row = _first_row(wrong)
        raise InputValueError(
            "Inputs must be finite float32 numbers.",
            where=f"/inputs/{row}",
            found=str(inputs[row][wrong[row]].flat[0]),
            expected="finite numbers, or NaN for what is missing" if nan_is_missing else "finite numbers",
        )


def _first_row(wrong: npt.NDArray[np.bool_]) -> int:
    return int(np.argmax(wrong.reshape(len(wrong), -1).any(axis=1)))
