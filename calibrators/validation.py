"""Check the caller's arguments; each refusal says what was found and what was expected.

Logits and probabilities are never copied here, so a memory map stays on disk. ``chunks.py`` checks their values as they
are read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.errors import CalibrationDataError, shown
from calibrators.row_subset import RowSubset, take_rows

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100
MOST_BINS, MOST_RESAMPLES = 1_000_000, 10_000_000


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows that passed the checks.

    Attributes:
        logits: (N, K) floating point, N ≥ 1, K ≥ 2, read by slices only: the caller's own array, or, if rows of weight
            zero were dropped, a small copy or a `RowSubset`.
        labels: (N,) int64 in 0 … K−1.
        weight: (N,) float64, positive, or None for equal weights.
        groups: (N,) numbers of the groups that rows belong to, from 0 without gaps, or None: each row is its own.
    """

    logits: Floats
    labels: Labels
    weight: Doubles | None
    groups: Labels | None = None

    def take(self, index: Labels) -> LabelledRows:
        """Return the rows with the numbers ``index`` (n,); see `take_rows`."""
        weight = None if self.weight is None else self.weight[index]
        groups = None if self.groups is None else as_groups(self.groups[index], len(index))
        return LabelledRows(take_rows(self.logits, index), self.labels[index], weight, groups)

    def relative(self) -> LabelledRows:
        """Return the same rows with weights from `relative_weight`, so that sums stay finite."""
        if self.weight is None:
            return self
        return replace(self, weight=relative_weight(self.weight))


def relative_weight(weight: Doubles) -> Doubles:
    """Divide weights (N,) by the power of two that brings the largest to [0.5, 1); their ratios stay exact."""
    return np.asarray(np.ldexp(weight, -int(np.frexp(weight.max())[1])))


def as_array(values: ArrayLike, name: str) -> npt.NDArray[Any]:
    """View ``values`` as an array of any type; refuse rows of unequal lengths."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError):
        raise CalibrationDataError(
            "Wrong shape", where=name, found=shown(values), expected="an array, or lists of equal lengths"
        ) from None


def check_shape(array: npt.NDArray[Any], shape: tuple[int, ...], name: str) -> None:
    """Refuse an array of another shape; ``name`` is what the error calls it."""
    if array.shape != shape:
        raise CalibrationDataError(
            "Wrong shape", where=name, found=f"an array of shape {array.shape}", expected=f"shape {shape}"
        )


def as_matrix(values: ArrayLike, name: str) -> Floats:
    """View ``values`` as a floating point matrix (N, K), K ≥ 2; integers become float64, a `RowSubset` stays itself.

    Raises:
        CalibrationDataError: Wrong number of axes, fewer than two classes, or a type other than float16, float32,
            float64 and integers.
    """
    if isinstance(values, RowSubset):
        return cast("Floats", values)
    matrix = as_array(values, name)
    if matrix.ndim != 2:
        raise CalibrationDataError(
            "Wrong shape", where=name, found=f"an array of shape {matrix.shape}", expected="shape (rows, classes)"
        )
    if matrix.shape[1] < 2:
        raise CalibrationDataError(
            "Too few classes", where=name, found=f"an array of shape {matrix.shape}", expected="at least 2 columns"
        )
    if matrix.dtype.char in "efd" and matrix.dtype.isnative:
        return matrix
    if matrix.dtype.kind in "iu":
        return matrix.astype(np.float64)
    raise CalibrationDataError(
        "Wrong type", where=name, found=f"of type {matrix.dtype}", expected="float16, float32, float64 or integers"
    )


def as_labels(values: ArrayLike, rows: int, classes: int, name: str = "labels") -> Labels:
    """Check labels (N,) against N ``rows`` and the number of ``classes``; return them as int64.

    Raises:
        CalibrationDataError: Wrong shape, not integers, or out of range.
    """
    labels = as_array(values, name)
    check_shape(labels, (rows,), name)
    if labels.dtype.kind not in "iu":
        raise CalibrationDataError("Wrong type", where=name, found=f"of type {labels.dtype}", expected="integers")
    if rows and (labels.min() < 0 or labels.max() >= classes):
        row = int(np.argmax((labels < 0) | (labels >= classes)))
        raise CalibrationDataError(
            "Label out of range",
            where=f"{name}[{row}]",
            found=str(labels[row]),
            expected=f"an integer from 0 to {classes - 1}",
        )
    return labels.astype(np.int64, copy=False)


def as_weight(values: ArrayLike | None, rows: int) -> Doubles | None:
    """Check sample weights (N,), and return them as float64; None stays None.

    Each weight is 0, or from 1e-100 to 1e100, so that no product of two overflows or vanishes.

    Raises:
        CalibrationDataError: Wrong shape or type, a weight out of range, or only zeros.
    """
    if values is None:
        return None
    weight = as_array(values, "sample_weight")
    check_shape(weight, (rows,), "sample_weight")
    if weight.dtype.kind not in "fiub":
        raise CalibrationDataError(
            "Wrong type", where="sample_weight", found=f"of type {weight.dtype}", expected="numbers"
        )
    weight = weight.astype(np.float64, copy=False)
    bad = ~((weight >= LEAST_WEIGHT) & (weight <= LARGEST_WEIGHT) | (weight == 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise CalibrationDataError(
            "Bad weight",
            where=f"sample_weight[{row}]",
            found=str(weight[row]),
            expected=f"0, or a number from {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}",
        )
    if rows and not weight.any():
        raise CalibrationDataError(
            "No weight", where="sample_weight", found="zero in every row", expected="at least one positive weight"
        )
    return weight


def as_groups(values: ArrayLike | None, rows: int) -> Labels | None:
    """Number groups (N,) of strings or integers from zero, integers before strings; None stays None.

    Raises:
        CalibrationDataError: Wrong shape, or an entry that is neither a string nor an integer.
    """
    if values is None:
        return None
    try:
        # As objects: numpy would turn the integers of a mixed list into strings.
        given = values if isinstance(values, np.ndarray) else np.array([*cast("Iterable[Any]", values)], np.object_)
    except (TypeError, ValueError):
        raise CalibrationDataError(
            "Wrong shape", where="groups", found=shown(values), expected="one string or integer per row"
        ) from None
    check_shape(given, (rows,), "groups")
    if given.dtype.kind in "iuU":
        return np.unique(given, return_inverse=True)[1].astype(np.int64, copy=False)
    for row, value in enumerate(given.tolist()):
        if isinstance(value, bool) or not isinstance(value, str | int | np.integer):
            raise CalibrationDataError(
                "Wrong type", where=f"groups[{row}]", found=shown(value), expected="a string or an integer"
            )
    names = [(isinstance(value, str), value) for value in given.tolist()]
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.array([numbers[name] for name in names], np.int64)


def check_classes(found: int, fitted: int, name: str) -> None:
    """Refuse a number of columns that differs from the fit; ``name`` is what the error calls the array."""
    if found != fitted:
        raise CalibrationDataError(
            "Wrong number of classes",
            where=name,
            found=f"an array of {found} columns",
            expected=f"{fitted} columns, as in the fit",
        )


def check_choice(value: object, choices: tuple[object, ...], name: str) -> None:
    """Refuse a ``value`` that is not among ``choices``, and list them."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.number) or value not in choices:
        raise CalibrationDataError(
            "Unknown option", where=name, found=shown(value), expected="one of " + ", ".join(map(repr, choices))
        )


def check_count(value: object, name: str, least: int = 1, most: float = sys.float_info.max) -> None:
    """Refuse a ``value`` that is not an integer from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        limit = "more" if most == sys.float_info.max else f"more, up to {most:g}"
        raise CalibrationDataError(
            "Bad option", where=name, found=shown(value), expected=f"an integer of {least} or {limit}"
        )


def check_bin_count(value: object) -> None:
    """Refuse a number of bins that is not an integer from 1 to 1,000,000."""
    check_count(value, "bins", most=MOST_BINS)


def check_resamples(value: object) -> None:
    """Refuse a number of resamples that is not an integer from 1 to 10,000,000."""
    check_count(value, "resamples", most=MOST_RESAMPLES)


def checked_rows(
    values: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None, name: str
) -> tuple[Floats, Labels, Doubles | None]:
    """Check a matrix (N, K), N ≥ 1, called ``name`` in errors, with its labels (N,) and weights (N,) or None."""
    matrix = as_matrix(values, name)
    rows, classes = matrix.shape
    if rows == 0:
        raise CalibrationDataError(
            "No data", where=name, found=f"an array of shape {matrix.shape}", expected="at least one row"
        )
    return matrix, as_labels(labels, rows, classes), as_weight(sample_weight, rows)


def labelled_rows(
    logits: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None = None
) -> LabelledRows:
    """Check the arguments of ``fit`` and drop rows of weight zero.

    Raises:
        CalibrationDataError: As the checks above, or no rows.
    """
    matrix, checked, weight = checked_rows(logits, labels, sample_weight, "logits")
    rows = LabelledRows(matrix, checked, weight, as_groups(groups, len(checked)))
    return rows if weight is None or weight.all() else rows.take(np.flatnonzero(weight))
