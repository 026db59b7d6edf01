"""Sums over the bins of a reliability curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators.arrays import Doubles, Labels
from calibrators.binning import SCHEMES, Scheme, bin_edges, bin_index
from calibrators.metrics.rows import TopLabels
from calibrators.validation import check_choice, check_count


@dataclass(frozen=True, slots=True)
class BinTotals:
    """Sums over each bin that holds a row; B of them.

    Attributes:
        lower: (B,) edges; a bin is (lower, upper], the first one closed.
        upper: (B,).
        count: (B,) number of rows.
        weight: (B,) their weights' sum, positive.
        confidence: (B,) weighted sum of confidences.
        correct: (B,) weight of the right answers.
    """

    lower: Doubles
    upper: Doubles
    count: Labels
    weight: Doubles
    confidence: Doubles
    correct: Doubles


def check_bins(bins: int, scheme: Scheme) -> None:
    """Refuses options that are not bins; raises CalibrationDataError."""
    check_count(bins, "bins")
    check_choice(scheme, SCHEMES, "scheme")


def bin_totals(rows: TopLabels, bins: int, scheme: Scheme) -> BinTotals:
    """Adds up rows over bins of their confidence.

    Args:
        rows: N ≥ 1 of them.
        bins: Number of bins.
        scheme: ``"width"`` or ``"mass"``.
    """
    edges = bin_edges(rows.confidence, bins, scheme, rows.weight)
    index = bin_index(rows.confidence, edges)
    size = len(edges) - 1
    confidence, hits = rows.confidence.astype(np.float64), index[rows.correct]
    count = np.bincount(index, minlength=size)
    if rows.weight is None:
        weight: Doubles = count.astype(np.float64)
        right: Doubles = np.bincount(hits, minlength=size).astype(np.float64)
    else:
        weight = np.bincount(index, rows.weight, size).astype(np.float64)
        right = np.bincount(hits, rows.weight[rows.correct], size).astype(np.float64)
        confidence *= rows.weight
    kept = count > 0
    return BinTotals(
        edges[:-1][kept].astype(np.float64),
        edges[1:][kept].astype(np.float64),
        count[kept].astype(np.int64),
        weight[kept],
        np.bincount(index, confidence, size)[kept].astype(np.float64),
        right[kept],
    )
