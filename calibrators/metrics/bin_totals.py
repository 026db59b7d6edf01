"""Sums over the bins of a reliability curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators.arrays import Doubles, Labels
from calibrators.binning import SCHEMES, Scheme, bin_edges, bin_index
from calibrators.chunks import CHUNK_ENTRIES
from calibrators.metrics.rows import TopLabels
from calibrators.validation import check_bin_count, check_choice


@dataclass(frozen=True, slots=True)
class BinTotals:
    """Sums over each bin with rows; B bins.

    Attributes:
        lower: (B,) edges; a bin is (lower, upper], the first one closed.
        upper: (B,).
        count: (B,) number of rows.
        weight: (B,) sum of their weights, positive.
        confidence: (B,) weighted sum of confidences.
        correct: (B,) weight of the right answers.
        noise: (B,) sum of `noise_weight`.
        noise_correct: (B,) sum of `noise_weight` over the right answers.
        noise_weight: (B,) sum of `noise_weight` times weight.
    """

    lower: Doubles
    upper: Doubles
    count: Labels
    weight: Doubles
    confidence: Doubles
    correct: Doubles
    noise: Doubles
    noise_correct: Doubles
    noise_weight: Doubles


def check_bins(bins: int, scheme: Scheme) -> None:
    """Refuse invalid ``bins`` or ``scheme``; raises CalibrationDataError."""
    check_bin_count(bins)
    check_choice(scheme, SCHEMES, "scheme")


def bin_totals(rows: TopLabels, bins: int, scheme: Scheme, noise: Doubles | None = None) -> BinTotals:
    """Add up rows over bins of their confidence; ``noise`` (N,) is each row's `noise_weight`, None its weight."""
    edges = bin_edges(rows.confidence, bins, scheme, rows.weight)
    size = len(edges) - 1
    counts = np.zeros((size, 2), np.int64)
    sums = np.zeros((6, size))
    for start in range(0, len(rows.correct), CHUNK_ENTRIES):
        part = slice(start, start + CHUNK_ENTRIES)
        index = bin_index(rows.confidence[part], edges)
        confidence, correct = rows.confidence[part].astype(np.float64), rows.correct[part]
        counts += np.bincount(2 * index + correct, minlength=2 * size).reshape(size, 2)
        if rows.weight is not None:
            weight = rows.weight[part]
            confidence *= weight
            sums[0] += np.bincount(index, weight, size)
            sums[1] += np.bincount(index, weight * correct, size)
        if noise is not None:
            sums[3] += np.bincount(index, noise[part], size)
            sums[4] += np.bincount(index, noise[part] * correct, size)
            sums[5] += np.bincount(index, noise[part] * (1.0 if rows.weight is None else weight), size)
        sums[2] += np.bincount(index, confidence, size)
    count = counts.sum(axis=1)
    if rows.weight is None:
        sums[0], sums[1] = count, counts[:, 1]
    if noise is None:
        sums[3:] = sums[[0, 1, 0]]
    kept = count > 0
    weight, right, confidence, variance, variance_right, variance_weight = sums[:, kept]
    return BinTotals(
        edges[:-1][kept].astype(np.float64),
        edges[1:][kept].astype(np.float64),
        count[kept],
        weight,
        confidence,
        right,
        variance,
        variance_right,
        variance_weight,
    )
