"""Total variation calibration error of whole distributions."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import ArrayLike, Doubles, Floats, Labels
from calibrators.binning import bin_edges, bin_index
from calibrators.chunks import probability_chunks, row_chunks
from calibrators.metrics.rows import check_rows
from calibrators.validation import check_bin_count

# Maximum cells times classes held at once (16 MiB); the matrix is read once per part of that size.
_SUMS_AT_ONCE = 2**21


def total_variation_calibration_error(
    probabilities: ArrayLike, labels: ArrayLike, bins: int = 10, sample_weight: ArrayLike | None = None
) -> float:
    """Return the distance between mean probabilities and class frequencies over cells of the simplex, in [0, 1].

    A cell holds the rows with every class probability in the same one of ``bins`` equal bins; the error is Σ over cells
    of share · ½ ‖frequencies − mean probabilities‖₁. It sees miscalibration that no top label shows. With many classes
    or bins the cells hold few rows, and the error is mostly noise: compare it only at equal N, K and bins.

    References:
        Vaicenavicius et al. (2019), Evaluating model calibration in classification, section 4; Widmann, Lindsten,
        Zachariah (2019), Calibration tests in multi-class classification, section 3.

    Example:
        >>> round(total_variation_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.4
    """
    check_bin_count(bins)
    matrix, truth, weight = check_rows(probabilities, labels, sample_weight)
    weight = np.ones(len(truth)) if weight is None else weight
    cell = _cells(matrix, bins)
    alone = np.bincount(cell)[cell] == 1
    distance = 0.0
    for part in row_chunks(*matrix.shape):
        # The distance of a row from its own label equals that from all other classes together.
        single = np.flatnonzero(alone[part]) + part.start
        distance += 2 * float(weight[single] @ (1 - matrix[single, truth[single]].astype(np.float64)))
    if not alone.all():
        distance += _shared(matrix, truth, weight, np.where(alone, -1, cell))
    return distance / (2 * float(weight.sum()))


def _shared(matrix: Floats, truth: Labels, weight: Doubles, cell: Labels) -> float:
    """Return Σ over cells and classes of |weighted sum of probabilities − weight of labels|, without cell −1."""
    used = cell >= 0
    cell = np.where(used, np.cumsum(np.bincount(cell[used]) > 0)[cell] - 1, -1)
    size, classes = int(cell.max()) + 1, matrix.shape[1]
    width = min(max(1, _SUMS_AT_ONCE // size), classes)
    distance = 0.0
    for first in range(0, classes, width):
        last = min(first + width, classes)
        gaps = np.zeros((size, last - first))
        for part in row_chunks(*matrix.shape):
            order = np.argsort(cell[part], kind="stable")
            order = order[cell[part][order] >= 0] + part.start
            if not len(order):
                continue
            values = matrix[order, first:last] * weight[order, None]
            own = np.flatnonzero((truth[order] >= first) & (truth[order] < last))
            values[own, truth[order[own]] - first] -= weight[order[own]]
            numbers = cell[order]
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            gaps[numbers[starts]] += np.add.reduceat(values, starts, axis=0)
        distance += float(np.abs(gaps).sum())
    return distance


def _cells(probabilities: Floats, bins: int) -> Labels:
    """Return the number (N,) of each row's cell.

    A row sums to one, so hardly more than ``bins`` of its classes lie above their first bin; these and their bins
    identify the cell. They are appended to a row's number like digits, the j-th of all rows at once, and the numbers in
    use are then counted from zero.
    """
    rows, classes = probabilities.shape
    edges = bin_edges(probabilities[:0, 0], bins, "width")
    # Rounding may leave a probability above 1, which must not make a second bin.
    first_edge = edges[1] if bins > 1 else np.inf
    digits = np.int32 if classes * bins <= np.iinfo(np.int32).max else np.int64
    found, count = [], np.zeros(rows, np.int32)
    for part, chunk in probability_chunks(probabilities):
        row, column = np.nonzero(chunk > first_edge)
        count[part] = np.bincount(row, minlength=len(chunk))
        found.append((column * bins + bin_index(chunk[row, column], edges)).astype(digits))
    digit = np.concatenate(found)
    del found
    first = np.cumsum(count) - count
    cell = np.zeros(rows, np.int64)
    for j in range(int(count.max())):
        has = np.flatnonzero(count > j)
        # A digit is at least 1, for a bin above the first; 0 means that the row has no j-th digit.
        cell *= classes * bins
        cell[has] += digit[first[has] + j]
        cell = np.unique(cell, return_inverse=True)[1].astype(np.int64, copy=False)
    return cell
