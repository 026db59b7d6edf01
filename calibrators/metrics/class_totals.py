"""Sums over the bins of each class's probability."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calibrators.arrays import ArrayLike
from calibrators.binning import Scheme, bin_edges, bin_index
from calibrators.chunks import probability_chunks
from calibrators.metrics.bin_totals import BinTotals, bin_totals
from calibrators.metrics.rows import check_rows, class_columns

# Above this many sums, classes are read one by one.
_SUMS_AT_ONCE = 2**20


def class_totals(
    probabilities: ArrayLike, labels: ArrayLike, bins: int, scheme: Scheme, sample_weight: ArrayLike | None
) -> Iterator[BinTotals]:
    """Yield, for each class, the sums over bins of its probability and of its labels.

    Equal-width bins are known beforehand and take one pass over the matrix for all classes.
    """
    matrix, truth, weight = check_rows(probabilities, labels, sample_weight)
    classes = matrix.shape[1]
    size = classes * bins
    if scheme == "mass" or size > _SUMS_AT_ONCE:
        for column in class_columns(matrix, truth, sample_weight):
            yield bin_totals(column, bins, scheme)
        return
    edges = bin_edges(matrix[:0, 0], bins, scheme)
    count = np.zeros(size, np.int64)
    mass, stated, right = np.zeros((3, size))
    for part, chunk in probability_chunks(matrix):
        index = bin_index(np.minimum(chunk, 1), edges)
        index += np.arange(classes) * bins
        own = index[np.arange(len(index)), truth[part]]
        entries, values = index.reshape(-1), np.minimum(chunk, 1).reshape(-1)
        if weight is None:
            count += np.bincount(entries, minlength=size)
            stated += np.bincount(entries, values, size)
            right += np.bincount(own, minlength=size)
            continue
        repeated = np.repeat(weight[part], classes)
        count += np.bincount(entries[repeated > 0], minlength=size)
        mass += np.bincount(entries, repeated, size)
        stated += np.bincount(entries, repeated * values, size)
        right += np.bincount(own, weight[part], size)
    if weight is None:
        mass = count.astype(np.float64)
    lower, upper = edges[:-1].astype(np.float64), edges[1:].astype(np.float64)
    for first in range(0, size, bins):
        part = slice(first, first + bins)
        kept = count[part] > 0
        sums = (values[part][kept] for values in (count, mass, stated, right, mass, right, mass))
        yield BinTotals(lower[kept], upper[kept], *sums)
