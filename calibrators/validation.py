"""Checks of what callers hand in; each refusal says what was found and what was expected.

Nothing here copies logits or probabilities, so a memory map stays on disk. Whether their values are usable is checked
chunk by chunk where they are read (``chunks.py``).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.errors import CalibrationDataError, shown
from calibrators.row_subset import RowSubset, take_rows
from calibrators.segments import number_segments

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100
MOST_BINS, MOST_RESAMPLES = 1_000_000, 10_000_000


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows that passed the checks.

    Attributes:
        logits: (N, K) floating point, N ≥ 1, K ≥ 2; the caller's own array, not a copy, where no row was dropped; else
            a small copy or a `RowSubset`. Read by slices only.
        labels: (N,) int64 in 0 … K−1.
        weight: (N,) float64, positive, or None for equal weights. Rows of weight zero are gone.
    """

    logits: Floats
    labels: Labels
    weight: Doubles | None

    def relative(self) -> LabelledRows:
        """The same rows, their largest weight brought to [0.5, 1) by a power of two, so that sums stay finite.

        Only the ratios of weights are kept, and those exactly.
        """
        if self.weight is None:
            return self
        return LabelledRows(self.logits, self.labels, relative_weight(self.weight))


def relative_weight(weight: Doubles) -> Doubles:
    """Weights (N,) divided by the power of two that brings the largest to [0.5, 1)."""
    return np.asarray(np.ldexp(weight, -int(np.frexp(weight.max())[1])))


def as_array(values: ArrayLike, name: str) -> npt.NDArray[Any]:
    """Views ``values`` as an array of whatever type; refuses what cannot be one, such as rows of unequal lengths."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError):
        raise CalibrationDataError(
            "Wrong shape", where=name, found=shown(values), expected="an array, or lists of equal lengths"
        ) from None


def as_matrix(values: ArrayLike, name: str) -> Floats:
    """Views ``values`` as a floating point (N, K) matrix; integers become float64.

    Args:
        values: (N, K), K ≥ 2, of float16, float32, float64 or an integer type.
        name: What to call it in an error.

    Returns:
        The same array, or `RowSubset`, where its type is a floating point type already.

    Raises:
        CalibrationDataError: Wrong number of axes, fewer than two classes, or another type.
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
    """Checks labels against the matrix that they belong to.

    Args:
        values: (N,) integers in 0 … classes − 1.
        rows: N, the number of rows that they must match.
        classes: Number of classes.
        name: What to call them in an error.

    Returns:
        (N,) int64.

    Raises:
        CalibrationDataError: Wrong shape, not integers, or out of range.
    """
    labels = as_array(values, name)
    if labels.shape != (rows,):
        raise CalibrationDataError(
            "Wrong shape", where=name, found=f"an array of shape {labels.shape}", expected=f"shape ({rows},)"
        )
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
    """Checks sample weights.

    Args:
        values: (N,) numbers, each 0 or from 1e-100 to 1e100, so that no product of two overflows or vanishes; not all
            of them 0. Or None.
        rows: N.

    Returns:
        (N,) float64, or None.

    Raises:
        CalibrationDataError: Wrong shape, negative or beyond that range, or nothing but zeros.
    """
    if values is None:
        return None
    weight = as_array(values, "sample_weight")
    if weight.shape != (rows,):
        raise CalibrationDataError(
            "Wrong shape", where="sample_weight", found=f"an array of shape {weight.shape}", expected=f"shape ({rows},)"
        )
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
            "No weight", where="sample_weight", found="zero in every row", expected="a positive weight somewhere"
        )
    return weight


def as_groups(values: ArrayLike | None, rows: int) -> Labels | None:
    """Numbers the groups (clusters) of rows from zero.

    Args:
        values: (N,) integers or strings, equal where rows belong together, or None.
        rows: N.

    Returns:
        (N,) int64 in 0 … G−1, or None.

    Raises:
        CalibrationDataError: Wrong shape, or an entry that is neither a string nor an integer.
    """
    return None if values is None else number_segments(values, rows, "groups")[1]


def check_classes(found: int, fitted: int, name: str) -> None:
    """Refuses a number of columns other than that of the fit; ``name`` says whose in the error."""
    if found != fitted:
        raise CalibrationDataError(
            "Wrong number of classes",
            where=name,
            found=f"an array of {found} columns",
            expected=f"{fitted} columns, as in the fit",
        )


def check_choice(value: object, choices: tuple[object, ...], name: str) -> None:
    """Refuses a ``value`` that is none of ``choices``, strings or numbers, listing them."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.number) or value not in choices:
        raise CalibrationDataError(
            "Unknown option", where=name, found=shown(value), expected="one of " + ", ".join(map(repr, choices))
        )


def check_count(value: object, name: str, least: int = 1, most: float = sys.float_info.max) -> None:
    """Refuses a ``value`` that is not an integer from ``least`` to ``most``; float64 must be able to hold it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        limit = "more" if most == sys.float_info.max else f"more, up to {most:g}"
        raise CalibrationDataError(
            "Bad option", where=name, found=shown(value), expected=f"an integer of {least} or {limit}"
        )


def check_bin_count(value: object) -> None:
    """Refuses a number of bins that is not an integer from 1 to 1,000,000."""
    check_count(value, "bins", most=MOST_BINS)


def check_resamples(value: object) -> None:
    """Refuses a number of resamples that is not an integer from 1 to 10,000,000."""
    check_count(value, "resamples", most=MOST_RESAMPLES)


def labelled_rows(logits: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None) -> LabelledRows:
    """Checks the three arguments of every ``fit`` together and drops rows of weight zero.

    Args:
        logits: (N, K), N ≥ 1, K ≥ 2.
        labels: (N,) integers in 0 … K−1.
        sample_weight: (N,) non-negative, or None.

    Raises:
        CalibrationDataError: As the checks above, or no rows at all.
    """
    matrix = as_matrix(logits, "logits")
    rows, classes = matrix.shape
    if rows == 0:
        raise CalibrationDataError(
            "No data", where="logits", found=f"an array of shape {matrix.shape}", expected="at least one row"
        )
    checked = as_labels(labels, rows, classes)
    weight = as_weight(sample_weight, rows)
    if weight is not None and not weight.all():
        kept = np.flatnonzero(weight)
        return LabelledRows(take_rows(matrix, kept), checked[kept], weight[kept])
    return LabelledRows(matrix, checked, weight)
