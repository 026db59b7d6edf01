"""Rows that a caller has in memory: a data frame or a matrix, with labels."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from importing.errors import RowsError
from importing.rows.result import Rows
from importing.rows.times import Times
from importing.rows.values import NAME_IT

_PATH = Path("X")


def rows_in_memory(
    X: Any,
    y: Any,
    *,
    names: Sequence[str] | None = None,
    texts: Collection[str] = (),
    group: Any = None,
    segment: Any = None,
    time: Any = None,
    weight: Any = None,
) -> Rows:
    """Return labelled rows.

    Args:
        X: A pandas DataFrame, or an array (N, F) of numbers.
        y: Class of each row, (N,).
        names: Names of an array's columns; None to number them.
        texts: Columns of a data frame that are texts even if their values are numbers.
        group: Group of each row, (N,), or None.
        segment: Segment of each row, (N,), or None.
        time: Time of each row, (N,), or None: dates and times, ISO 8601, or seconds or milliseconds since 1970; UTC
            without an offset.
        weight: Weight of each row, (N,), above 0, or None.

    Raises:
        RowsError: A column has another length or type, a value is missing where one is required, or all rows have one
            class.

    Example:
        >>> rows_in_memory(np.array([[0.5, 2.0], [1.5, 3.0]]), ["genuine", "fraud"]).features
        {'f0': array([0.5, 1.5]), 'f1': array([2., 3.])}
    """
    features = _features(X, names, texts)
    count = len(next(iter(features.values())))
    label = _texts("y", y, count)
    times = None if time is None else _times(time, count)
    rows = Rows(
        path=_PATH,
        sha256=_digest([*features.values(), label]),
        features=features,
        label=label,
        label_name="y",
        group=None if group is None else _texts("group", group, count, missing=True),
        segment=None if segment is None else _texts("segment", segment, count, missing=True),
        part=None,
        time=times,
        weight=None if weight is None else _converted("weight", weight, count, "float64"),
        scores=None,
        lines=np.arange(1, count + 1),
        unit="row",
    )
    if rows.weight is not None and not (np.isfinite(rows.weight) & (rows.weight > 0)).all():
        raise RowsError("A weight is not a positive number.", where="weight", expected="finite numbers above 0")
    rows.check_classes()
    return rows


def _features(X: Any, names: Sequence[str] | None, texts: Collection[str]) -> dict[str, NDArray[Any]]:
    if hasattr(X, "columns"):
        found = {str(name): X[name] for name in X.columns}
        if len(found) != len(X.columns) or not len(X) or not found:
            raise RowsError("X has no rows, no columns, or two columns of one name.", where="X", found=str(X.shape))
        return {name: _feature(name, column, text=name in texts) for name, column in found.items()}
    matrix = np.asarray(X)
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "biuf":
        raise RowsError(
            "X is not a table.",
            found=f"{matrix.dtype} {matrix.shape}",
            expected="a pandas DataFrame, or an array (N, F) of numbers",
        )
    columns = names or [f"f{place}" for place in range(matrix.shape[1])]
    if len(columns) != matrix.shape[1]:
        raise RowsError("X has another width.", found=f"{matrix.shape[1]} columns", expected=f"{len(columns)} columns")
    return {name: column.astype(np.float64) for name, column in zip(columns, matrix.T, strict=True)}


def _feature(name: str, column: Any, *, text: bool) -> NDArray[Any]:
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biuf" and not hasattr(column, "cat") and not text:
        return np.asarray(column.to_numpy(np.float64, na_value=np.nan), np.float64)
    if kind in "mMc":
        raise RowsError(
            "A column is neither numbers nor texts.",
            where=f"X, column {name}",
            found=str(column.dtype),
            remedy="Give the model numbers, such as hours or days, in a step before it.",
        )
    return np.array(
        [None if lacking else str(value) for value, lacking in zip(column, column.isna(), strict=True)], object
    )


def _column(name: str, values: Any, count: int) -> NDArray[Any]:
    found = np.asarray(values)
    if found.shape != (count,):
        raise RowsError("A column has another shape.", where=name, found=str(found.shape), expected=f"({count},)")
    return found


def _converted(name: str, values: Any, count: int, dtype: str) -> NDArray[Any]:
    try:
        return _column(name, values, count).astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise RowsError(f"A {name} is not valid.", where=name, found=str(error), expected=dtype) from error


def _times(values: Any, count: int) -> NDArray[np.int64]:
    times = Times(spelled=False)
    column = _column("time", values, count)
    if column.dtype == object:  # such as pandas' times with an offset
        column = np.array([None if lacks(value) else value for value in column], object)
    times.add(column, lambda row: f"time, row {row + 1}")
    return times.finish()


def _texts(name: str, values: Any, count: int, *, missing: bool = False) -> NDArray[np.object_]:
    column = _column(name, np.asarray(values, object), count).tolist()  # a list with NaN and texts keeps its NaN
    texts = [None if lacks(value) else str(value) for value in column]
    if None in texts and not missing:
        row = texts.index(None)
        raise RowsError("The label is missing.", where=f"{name}, row {row + 1}", found=str(column[row]), remedy=NAME_IT)
    return np.array(texts, object)


def lacks(value: Any) -> bool:
    """Return whether a value is missing: None, NaN or pandas.NA."""
    same = value == value
    return value is None or not isinstance(same, bool | np.bool_) or not same  # pandas.NA is not even unequal


def _digest(columns: Sequence[NDArray[Any]]) -> str:
    found = hashlib.sha256()
    for column in columns:
        content = column.tobytes() if column.dtype != object else "\0".join(map(str, column)).encode()
        found.update(len(content).to_bytes(8, "little") + content)
    return found.hexdigest()
