"""Binned calibration errors: plug-in (ECE, RMS, maximum), class by class, and debiased."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.binning import Scheme, bin_edges, bin_index
from calibrators.metrics.bin_totals import bin_totals, check_bins
from calibrators.metrics.rows import TopLabels, class_columns, top_labels
from calibrators.validation import check_choice

Norm: TypeAlias = Literal[1, 2, "max"]
NORMS: tuple[Norm, ...] = (1, 2, "max")


def expected_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    norm: Norm = 1,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> float:
    """Distance between confidence and accuracy over bins of confidence (ECE).

    It is biased upwards on finite data: a perfectly calibrated model scores above zero. Print it beside the null mean
    and quantile that `calibration_test` gives for the same rows.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        bins: Number of bins.
        scheme: ``"width"``: equal width over [0, 1]; ``"mass"``: equal numbers of rows, ties never split.
        norm: 1: Σ share · |gap|; 2: √(Σ share · gap²); ``"max"``: the largest |gap|, whatever the bin's size.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.

    Returns:
        In [0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.

    References:
        Naeini, Cooper, Hauskrecht (2015); Guo et al. (2017), eq. 3 and 5; norm 2: Kumar, Liang, Ma (2019), section 2.

    Example:
        >>> round(expected_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.4
    """
    check_bins(bins, scheme)
    check_choice(norm, NORMS, "norm")
    return binned_error(top_labels(probabilities, labels, sample_weight, predicted), bins, scheme, norm)


def classwise_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    norm: Norm = 1,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean over the classes of the calibration error of each class's probability.

    A class that the labels lack counts as any other: its probabilities should be near zero. Biased upwards, as
    `expected_calibration_error` is.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        bins: Number of bins for each class.
        scheme: ``"width"`` or ``"mass"``.
        norm: 1, 2 or ``"max"``, within each class.
        sample_weight: (N,) importance weights of 0 or more, or None.

    Returns:
        In [0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.

    References:
        Kull et al. (2019), Beyond temperature scaling, section 2.

    Example:
        >>> round(classwise_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.4
    """
    check_bins(bins, scheme)
    check_choice(norm, NORMS, "norm")
    columns = class_columns(probabilities, labels, sample_weight)
    return float(np.mean([binned_error(column, bins, scheme, norm) for column in columns]))


def debiased_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> float:
    """Debiased estimate of the squared calibration error: Σ share · (gap² − variance of the bin's accuracy).

    What noise adds to gap² on average is taken off, so the estimate scatters about the truth, and about zero for a
    calibrated model: a negative value is no fault. A bin of one row says nothing about its noise and is left out.
    With importance weights the noise is that of per-row influence and the Kish effective number of rows.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        bins: Number of bins.
        scheme: ``"width"`` or ``"mass"``.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.

    Returns:
        At most 1, in squared probability; may be negative.

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.

    References:
        Kumar, Liang, Ma (2019), Verified uncertainty calibration, definition 4.1 (debiased estimator).

    Example:
        >>> round(debiased_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        -0.09
    """
    rows = top_labels(probabilities, labels, sample_weight, predicted)
    weight = np.ones(len(rows.correct)) if rows.weight is None else rows.weight
    return debiased_statistic(rows, bins, scheme)(weight)


def debiased_statistic(rows: TopLabels, bins: int = 15, scheme: Scheme = "width") -> Callable[[Doubles], float]:
    """The debiased squared error as a function of the rows' weights (N,), with bins fixed by the data once."""
    check_bins(bins, scheme)
    edges = bin_edges(rows.confidence, bins, scheme, rows.weight)
    index = bin_index(rows.confidence, edges)
    size = len(edges) - 1
    confidence, correct = rows.confidence.astype(np.float64), rows.correct.astype(np.float64)

    def statistic(weight: Doubles) -> float:
        total = np.bincount(index, weight, size)
        squares = np.bincount(index, weight * weight, size)
        effective = np.divide(total * total, squares, out=np.zeros(size), where=squares > 0)
        kept = effective > 1 + 1e-9
        total, squares, effective = total[kept], squares[kept], effective[kept]
        right = np.bincount(index, weight * correct, size)[kept] / total
        gap = np.bincount(index, weight * confidence, size)[kept] / total - right
        right_squares = np.bincount(index, weight * weight * correct, size)[kept]
        influence = (right_squares * (1 - 2 * right) + squares * right**2) / total**2
        return float(total @ (gap**2 - influence * effective / (effective - 1)) / weight.sum())

    return statistic


def binned_error(rows: TopLabels, bins: int, scheme: Scheme, norm: Norm) -> float:
    """The plug-in calibration error of rows that have been read."""
    totals = bin_totals(rows, bins, scheme)
    difference = totals.confidence - totals.correct
    return float(combine_gaps(difference / totals.weight, totals.weight / totals.weight.sum(), norm))


def combine_gaps(gaps: Doubles, share: Doubles, norm: Norm) -> Doubles:
    """Combines gaps (…, B) of bins that hold the given shares (B,) of all weight into one error (…)."""
    if norm == 1:
        return np.asarray(np.abs(gaps) @ share)
    if norm == 2:
        return np.asarray(np.sqrt(gaps**2 @ share))
    return np.asarray(np.abs(gaps).max(axis=-1))
