"""Proper scores and accuracy: means of one number per row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.binning import Scheme
from calibrators.chunks import probability_chunks
from calibrators.metrics.bin_totals import check_bins
from calibrators.metrics.class_totals import class_totals
from calibrators.metrics.rows import check_rows, top_labels, weighted_mean


def negative_log_likelihood(
    probabilities: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Return the mean of −log p(label), in nats; infinite if a label has a probability of zero.

    Example:
        >>> round(negative_log_likelihood([[0.5, 0.5]], [1]), 6)
        0.693147
    """
    return weighted_mean(log_losses(probabilities, labels), check_rows(probabilities, labels, sample_weight)[2])


def brier_score(probabilities: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Return the mean over rows of Σ_k (p_k − 1[label = k])², from 0 to 2.

    With two classes this is twice the score of the positive class alone.

    References:
        Brier (1950), Verification of forecasts expressed in terms of probability.

    Example:
        >>> brier_score([[0.5, 0.5]], [1])
        0.5
    """
    return weighted_mean(squared_errors(probabilities, labels), check_rows(probabilities, labels, sample_weight)[2])


def accuracy(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> float:
    """Return the share of rows with the right predicted label.

    Example:
        >>> accuracy([[0.9, 0.1], [0.2, 0.8]], [0, 0])
        0.5
    """
    top = top_labels(probabilities, labels, sample_weight, predicted)
    return weighted_mean(top.correct.astype(np.float64), top.weight)


def log_losses(probabilities: ArrayLike, labels: ArrayLike) -> Doubles:
    """Return −log p(label) of each row, (N,) float64."""
    matrix, truth, _ = check_rows(probabilities, labels, None)
    losses = np.empty(len(truth))
    with np.errstate(divide="ignore"):
        for part, chunk in probability_chunks(matrix):
            losses[part] = np.log(chunk[np.arange(len(chunk)), truth[part]], dtype=np.float64)
    return np.abs(losses, out=losses)


def squared_errors(probabilities: ArrayLike, labels: ArrayLike) -> Doubles:
    """Return Σ_k (p_k − 1[label = k])² of each row, (N,) float64."""
    matrix, truth, _ = check_rows(probabilities, labels, None)
    errors = np.empty(len(truth))
    for part, chunk in probability_chunks(matrix):
        residuals = chunk.astype(np.float64)
        residuals[np.arange(len(residuals)), truth[part]] -= 1
        errors[part] = np.vecdot(residuals, residuals)
    return errors


@dataclass(frozen=True, slots=True)
class BrierDecomposition:
    """Parts of a Brier score: ``score = calibration + refinement + within_bins`` exactly.

    Attributes:
        score: The Brier score, 0 … 2.
        calibration: Squared distance between mean probability and frequency in the bins; 0 is calibrated. Biased
            upwards on finite data, like every plug-in calibration error.
        refinement: Variance of the labels inside the bins; low if bins separate the classes well.
        within_bins: The loss from treating the probabilities of a bin as equal; small with many bins.
    """

    score: float
    calibration: float
    refinement: float
    within_bins: float


def brier_decomposition(
    probabilities: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: Scheme = "width",
    sample_weight: ArrayLike | None = None,
) -> BrierDecomposition:
    """Split the Brier score into calibration and refinement, class by class over bins of the class's probability.

    References:
        Murphy (1973), A new vector partition of the probability score; DeGroot, Fienberg (1983), The comparison and
        evaluation of forecasters.

    Example:
        >>> parts = brier_decomposition([[0.8, 0.2], [0.8, 0.2]], [0, 1])
        >>> round(parts.calibration, 6), round(parts.refinement, 6)
        (0.18, 0.5)
    """
    check_bins(bins, scheme)
    calibration = refinement = 0.0
    for totals in class_totals(probabilities, labels, bins, scheme, sample_weight):
        share = totals.weight / totals.weight.sum()
        frequency = totals.correct / totals.weight
        calibration += float(share @ (totals.confidence / totals.weight - frequency) ** 2)
        refinement += float(share @ (frequency * (1 - frequency)))
    score = brier_score(probabilities, labels, sample_weight)
    return BrierDecomposition(score, calibration, refinement, score - calibration - refinement)
