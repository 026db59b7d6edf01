"""Overconfidence error: only bins with too much confidence count."""

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
    """Return Σ share · conf · max(conf − acc, 0) over bins of confidence, in [0, 1].

    Use it if only too much confidence does harm; an underconfident model scores zero. Biased upwards on finite data,
    like every plug-in calibration error.

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
