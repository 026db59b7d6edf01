"""Kolmogorov–Smirnov calibration error: no bins, one cumulative curve."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.metrics.rows import TopLabels, tied_runs, top_labels


def kolmogorov_smirnov_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
) -> float:
    """Return the largest distance between cumulated confidence and cumulated right answers, in order of confidence.

    max over s of |mean of (confidence − correct) · 1[confidence ≤ s]|, in [0, 1]. A gap of constant sign shows in full;
    gaps that alternate cancel. Rows of equal confidence enter together. On finite data a calibrated model scores up to
    about 0.5 / √N.

    References:
        Gupta et al. (2021), Calibration of neural networks using splines, section 3.1, eq. 6.

    Example:
        >>> round(kolmogorov_smirnov_error([[0.9, 0.1], [0.6, 0.4]], [0, 1]), 6)
        0.3
    """
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    _, residuals, weight = residuals_by_confidence(rows)
    return float(np.abs(np.cumsum(residuals)).max() / weight.sum())


def residuals_by_confidence(rows: TopLabels) -> tuple[Doubles, Doubles, Doubles]:
    """Return distinct confidences (U,), increasing, and the sums of weight · (confidence − correct) and of weight."""
    order, starts = tied_runs(rows.confidence)
    values = rows.confidence[order].astype(np.float64)
    weight = np.ones(len(order)) if rows.weight is None else rows.weight[order]
    residuals = weight * (values - rows.correct[order])
    return values[starts], np.add.reduceat(residuals, starts), np.add.reduceat(weight, starts)
