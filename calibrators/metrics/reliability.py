"""The data of a reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass

from calibrators.arrays import ArrayLike, Doubles, Labels
from calibrators.binning import Scheme
from calibrators.metrics.bin_totals import bin_totals, check_bins
from calibrators.metrics.rows import top_labels


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityCurve:
    """One entry for each bin that holds a row, in order of confidence; B of them.

    Attributes:
        lower: (B,) edges; a bin is (lower, upper], the first one closed.
        upper: (B,).
        confidence: (B,) mean confidence.
        accuracy: (B,) share of right answers.
        count: (B,) number of rows.
        share: (B,) of all weight; sums to one.
    """

    lower: Doubles
    upper: Doubles
    confidence: Doubles
    accuracy: Doubles
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
) -> ReliabilityCurve:
    """Mean confidence and accuracy over bins of confidence.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        bins: Number of bins; those without a row are left out.
        scheme: ``"width"`` or ``"mass"``.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.
        positive: None: the predicted label; a class: its probability, against whether it is the true one.

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options.

    Example:
        >>> curve = reliability_curve([[0.9, 0.1], [0.9, 0.1]], [0, 1], bins=5)
        >>> curve.confidence.round(6).tolist(), curve.accuracy.tolist()
        ([0.9], [0.5])
    """
    check_bins(bins, scheme)
    totals = bin_totals(top_labels(probabilities, labels, sample_weight, predicted, positive), bins, scheme)
    return ReliabilityCurve(
        totals.lower,
        totals.upper,
        totals.confidence / totals.weight,
        totals.correct / totals.weight,
        totals.count,
        totals.weight / totals.weight.sum(),
    )
