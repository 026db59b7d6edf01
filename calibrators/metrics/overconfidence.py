"""Overconfidence error: only the bins that promise too much."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import ArrayLike
from calibrators.binning import Scheme
from calibrators.metrics.bin_totals import bin_totals, check_bins
from calibrators.metrics.rows import top_labels


def overconfidence_error(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> float:
    """How far confidence exceeds accuracy, weighted by the confidence itself: Σ share · conf · max(conf − acc, 0).

    For uses where only too much confidence does harm; a model that is too modest scores zero. Biased upwards on finite
    data, as every plug-in calibration error is.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        bins: Number of bins.
        scheme: ``"width"`` or ``"mass"``.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.

    Returns:
        In [0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.

    References:
        Thulasidasan et al. (2019), On mixup training, section 3.1.

    Example:
        >>> round(overconfidence_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)
        0.36
        >>> overconfidence_error([[0.6, 0.4], [0.6, 0.4]], [0, 0])
        0.0
    """
    check_bins(bins, scheme)
    totals = bin_totals(top_labels(probabilities, labels, sample_weight, predicted), bins, scheme)
    confidence = totals.confidence / totals.weight
    excess = np.maximum(totals.confidence - totals.correct, 0)
    return float(confidence @ excess / totals.weight.sum())
