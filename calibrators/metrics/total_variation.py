"""Total variation calibration error: whole distributions, not one confidence."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import ArrayLike, Floats, Labels
from calibrators.binning import bin_edges, bin_index
from calibrators.chunks import probability_chunks
from calibrators.metrics.rows import check_rows
from calibrators.validation import check_count


def total_variation_calibration_error(
    probabilities: ArrayLike, labels: ArrayLike, bins: int = 10, sample_weight: ArrayLike | None = None
) -> float:
    """Distance between mean probabilities and class frequencies over cells of the simplex.

    A cell holds the rows whose every class probability lies in the same one of ``bins`` equal bins; the error is
    Σ over cells of share · ½ ‖frequencies − mean probabilities‖₁. It sees miscalibration that no top label shows. With
    many classes or bins the cells hold few rows each and the error is mostly noise (an upper bound is reached when each
    row has a cell of its own); compare it only between equal N, K and bins.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        bins: Number of equal-width bins for each class, right-closed.
        sample_weight: (N,) importance weights of 0 or more, or None.

    Returns:
        In [0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.

    References:
        Vaicenavicius et al. (2019), Evaluating model calibration in classification, section 4; Widmann, Lindsten,
        Zachariah (2019), Calibration tests in multi-class classification, section 3.

    Example:
        >>> round(total_variation_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.4
    """
    check_count(bins, "bins")
    matrix, truth, weight = check_rows(probabilities, labels, sample_weight)
    cell = _cells(matrix, bins)
    size = int(cell.max()) + 1
    weight = np.ones(len(truth)) if weight is None else weight
    order = np.argsort(truth, kind="stable")
    bounds = np.searchsorted(truth[order], np.arange(matrix.shape[1] + 1))
    distance = 0.0
    for k in range(matrix.shape[1]):
        own = order[bounds[k] : bounds[k + 1]]
        gap = np.bincount(cell, weight * matrix[:, k], size) - np.bincount(cell[own], weight[own], size)
        distance += float(np.abs(gap).sum())
    return distance / (2 * float(weight.sum()))


def _cells(probabilities: Floats, bins: int) -> Labels:
    """(N,) number of each row's cell.

    Bins of further classes are appended to a row's number like digits; before it could overflow, the numbers in use
    are renumbered from zero.
    """
    rows, classes = probabilities.shape
    for _ in probability_chunks(probabilities):
        pass  # checks every value
    edges = bin_edges(probabilities[:0, 0], bins, "width")
    cell, size = np.zeros(rows, np.int64), 1
    for k in range(classes):
        if size > 2**62 // bins:
            distinct, cell = np.unique(cell, return_inverse=True)
            size = len(distinct)
        cell = cell * bins + bin_index(probabilities[:, k], edges)
        size *= bins
    return np.unique(cell, return_inverse=True)[1].astype(np.int64, copy=False)
