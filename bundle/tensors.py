"""From rows of named values to the inputs of a graph with several tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle.errors import RowError
from bundle.inputs import InputSpec, TensorSpec

_MAX_AXES = 32


def encode(rows: Sequence[Mapping[str, Any]], spec: InputSpec) -> NDArray[Any]:
    """Return rows as a structured array (N,) with a field per tensor.

    Args:
        rows: Nested lists of numbers or strings by name of tensor; every tensor, and no other name.
        spec: Input of kind `tensors`.

    Raises:
        RowError: A tensor is missing or unknown, or its values have another type or shape.

    Example:
        >>> ids = TensorSpec(name="ids", dtype="int64", shape=(2,))
        >>> encode([{"ids": [3, 4]}], InputSpec(kind="tensors", dtype="record", tensors=(ids,)))["ids"]
        array([[3, 4]])
    """
    names = {tensor.name for tensor in spec.tensors}
    for row in rows:
        if row.keys() != names:
            name = next(iter(sorted(row.keys() ^ names)))
            raise RowError(
                f"the tensor {name!r} is {'missing' if name in names else 'unknown'}",
                found=str(sorted(row))[:200],
                expected=str(sorted(names))[:200],
            )
    encoded = np.empty(len(rows), spec.numpy)
    for tensor in spec.tensors:
        encoded[tensor.name] = column([row[tensor.name] for row in rows], tensor)
    return encoded


def column(values: Any, tensor: TensorSpec) -> NDArray[Any]:
    """Return a batch of one tensor (N, *shape), converted without loss.

    Args:
        values: Nested lists or an array of N examples; a tensor of one value per row may lack its last axis.
        tensor: The tensor.

    Raises:
        RowError: Types or shapes differ, a value is out of range or not finite, or a text is too long.
    """
    try:
        found = np.array(values, object) if tensor.dtype == "string" else numbers(values)
    except ValueError:
        found = np.array(None)
    expected = (len(found) if found.ndim else 0, *tensor.shape)
    if found.shape != expected and not (tensor.shape == (1,) and found.ndim == 1):
        raise RowError(
            f"the tensor {tensor.name!r} has the wrong shape",
            found=str(list(found.shape[1:])),
            expected=str(list(tensor.shape)),
        )
    found = found.reshape(expected)
    return _text(found, tensor) if tensor.dtype == "string" else _numbers(found, tensor)


def numbers(values: Any) -> NDArray[Any]:
    """Return nested lists of numbers as an array; with a text among them, as an array of objects.

    NumPy would give each number the length of the longest text.

    Raises:
        ValueError: The lists are ragged.
    """
    return np.asarray(values) if str not in _types(values, _MAX_AXES) else np.array(values, object)


def _types(values: Any, axes: int) -> set[type]:
    if not isinstance(values, list) or not axes:
        return {type(values)}
    types = set(map(type, values))
    return types.union(*(_types(value, axes - 1) for value in values)) if list in types else types


def cells(columns: Mapping[str, Sequence[Any] | NDArray[Any]], tensor: TensorSpec) -> NDArray[Any]:
    """Return encoded columns of a table as one tensor (N, *shape); NaN, a missing number, is kept.

    Args:
        columns: Encoded values by column, as many columns as the tensor has values per row.
        tensor: The tensor, of at most one axis.

    Raises:
        RowError: A number is out of the tensor's range; a tensor of whole numbers gets a number that is missing or has
            a fraction; a text is too long.
    """
    text = tensor.dtype == "string"
    table = np.array([*columns.values()], object if text else None).T
    values = table.reshape(len(table), *tensor.shape)
    if text:
        return _text(values, tensor)
    wanted = np.dtype(tensor.dtype)
    floats = wanted.kind == "f"
    with np.errstate(invalid="ignore", over="ignore"):
        converted = values.astype(wanted)
    wrong = np.isinf(converted) if floats else converted != values
    if wrong.any():
        row, place = (int(index) for index in np.argwhere(wrong.reshape(table.shape))[0])
        if np.isnan(float(table[row, place])):
            raise RowError(
                f"column {[*columns][place]!r} requires a value that the model knows",
                found="a missing or unknown value",
                expected=f"a value with a number of type {tensor.dtype}",
            )
        raise RowError(
            f"a value of column {[*columns][place]!r} does not fit {tensor.dtype}",
            found=str(table[row, place]),
            expected=f"a {'finite' if floats else 'whole'} number of type {tensor.dtype}",
        )
    return converted


def _text(found: NDArray[Any], tensor: TensorSpec) -> NDArray[Any]:
    texts = found.ravel().tolist()
    if not {str}.issuperset(map(type, texts)):
        raise _wrong_type(found, tensor, "text")
    longest = max(map(len, texts), default=0)  # before NumPy gives each text the length of the longest
    if longest > tensor.length:
        raise RowError(
            f"a text of {tensor.name!r} is too long", found=f"{longest} characters", expected=f"at most {tensor.length}"
        )
    return found.astype(f"<U{tensor.length}")


def _numbers(found: NDArray[Any], tensor: TensorSpec) -> NDArray[Any]:
    wanted = np.dtype(tensor.dtype)
    if found.dtype == wanted and wanted.kind != "f":
        return found
    allowed = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[wanted.kind]
    if found.dtype.kind not in allowed:
        raise _wrong_type(found, tensor, tensor.dtype)
    if wanted.kind in "iu" and found.size:
        limits = np.iinfo(wanted)
        if found.min() < limits.min or found.max() > limits.max:
            raise RowError(
                f"a value of {tensor.name!r} is out of range",
                found=str(int(found.min() if found.min() < limits.min else found.max())),
                expected=f"{limits.min} to {limits.max}",
            )
    with np.errstate(over="ignore"):
        converted = found.astype(wanted)
    if wanted.kind == "f" and not np.isfinite(converted).all():
        raise RowError(
            f"a value of {tensor.name!r} is not finite",
            found=str(found[~np.isfinite(converted)].flat[0]),
            expected=f"finite {tensor.dtype} numbers",
        )
    return converted


def _wrong_type(found: NDArray[Any], tensor: TensorSpec, expected: str) -> RowError:
    several = found.dtype.kind == "O"
    return RowError(
        f"the tensor {tensor.name!r} has the wrong type",
        found=" and ".join(sorted({type(value).__name__ for value in found.ravel()})) if several else str(found.dtype),
        expected=expected,
    )
