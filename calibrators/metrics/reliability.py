"""The data of a reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from calibrators.arrays import ArrayLike, Doubles, Labels
from calibrators.binning import Scheme
from calibrators.effective_rows import WeightKind
from calibrators.metrics.bin_totals import bin_totals, check_bins
from calibrators.metrics.intervals import check_level
from calibrators.metrics.rows import check_weight_kind, noise_weight, top_labels


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityCurve:
    """One entry per bin with rows, in order of confidence; B bins.

    Attributes:
        lower: (B,) edges; a bin is (lower, upper], the first one closed.
        upper: (B,).
        confidence: (B,) mean confidence.
        accuracy: (B,) share of right answers.
        low: (B,) lower end of an interval of that share; exact without weights.
        high: (B,) upper end.
        count: (B,) number of rows.
        share: (B,) of all weight; sums to one.
    """

    lower: Doubles
    upper: Doubles
    confidence: Doubles
    accuracy: Doubles
    low: Doubles
    high: Doubles
    count: Labels
    share: Doubles


def reliability_curve(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
    level: float = 0.95,
    weight_kind: WeightKind = "importance",
) -> ReliabilityCurve:
    """Return mean confidence and accuracy over bins of confidence; empty bins are left out.

    The accuracy of a bin has a two-sided binomial interval of Clopper and Pearson, which covers with a probability of
    ``level`` at least; rows with importance weights count as their effective number (Kish). Bins of equal mass in the
    probability are bins of equal mass in its log-odds too.

    References:
        Clopper, Pearson (1934), The use of confidence or fiducial limits illustrated in the case of the binomial.

    Example:
        >>> curve = reliability_curve([[0.9, 0.1], [0.9, 0.1]], [0, 1], bins=5)
        >>> curve.confidence.round(6).tolist(), curve.accuracy.tolist(), curve.low.round(3), curve.high.round(3)
        ([0.9], [0.5], array([0.013]), array([0.987]))
    """
    check_bins(bins, scheme)
    check_level(level)
    check_weight_kind(sample_weight, weight_kind)
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    noise = None if rows.weight is None else noise_weight(rows.weight, len(rows.correct), weight_kind)
    totals = bin_totals(rows, bins, scheme, noise)
    accuracy, effective = totals.correct / totals.weight, totals.weight**2 / totals.noise
    right, wrong = accuracy * effective, np.maximum(effective - accuracy * effective, 0)
    tail = (1 - level) / 2
    return ReliabilityCurve(
        totals.lower,
        totals.upper,
        totals.confidence / totals.weight,
        accuracy,
        np.where(right > 0, scipy.special.betaincinv(np.where(right > 0, right, 1), wrong + 1, tail), 0.0),
        np.where(wrong > 0, scipy.special.betaincinv(right + 1, np.where(wrong > 0, wrong, 1), 1 - tail), 1.0),
        totals.count,
        totals.weight / totals.weight.sum(),
    )
