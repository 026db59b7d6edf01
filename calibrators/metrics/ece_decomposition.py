"""Terms of the calibration error of an overconfident model: confidence, refinement and a constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators.arrays import ArrayLike
from calibrators.metrics.refinement import auroc_statistic, require_both
from calibrators.metrics.rows import top_labels, weighted_mean


@dataclass(frozen=True, slots=True)
class EceDecomposition:
    """Terms of equation 9; with π the share of right answers and r the refinement AUROC.

    Attributes:
        confidence: α, the mean confidence.
        refinement: β = 2 r π (1 − π).
        constant: γ = (π² + (1 − π)²) / 2.
        value: α − β − γ, what the equation gives for the calibration error.
        gap: Mean confidence − accuracy: what the error is when every bin is overconfident (equation 7). It differs
            from ``value`` as accuracy differs from the expected accuracy of telling right from wrong.
    """

    confidence: float
    refinement: float
    constant: float
    value: float
    gap: float


def ece_decomposition(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> EceDecomposition:
    """Splits the calibration error of an overconfident model into confidence, refinement and constant terms.

    The source puts accuracy equal to that of telling right answers from wrong ones by a threshold on confidence,
    averaged over all shares of rows above it, ½ + π(1 − π)(2r − 1). That is another quantity than the model's accuracy:
    read the terms to compare models (does a method lower confidence, or separate better?), not as a way to compute an
    error; `expected_calibration_error` does that.

    Args:
        probabilities: (N, K), rows sum to one; at least one right and one wrong answer.
        labels: (N,) integers in 0 … K−1.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.

    Raises:
        CalibrationDataError: Wrong shapes, types or values; all answers right, or all wrong.

    References:
        Singh et al. (2021), On the dark side of calibration for modern neural networks, eq. 7 to 9;
        Hernández-Orallo, Flach, Ferri (2012), A unified view of performance metrics, on eq. 8.

    Example:
        >>> parts = ece_decomposition([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        >>> round(parts.confidence, 6), parts.refinement, parts.constant, round(parts.value, 6)
        (0.75, 0.5, 0.25, 0.0)
    """
    rows = top_labels(probabilities, labels, sample_weight, predicted)
    require_both(rows)
    area = float(auroc_statistic(rows)(rows.weights()))
    right = weighted_mean(rows.correct.astype(np.float64), rows.weight)
    confidence = weighted_mean(rows.confidence.astype(np.float64), rows.weight)
    refinement = 2 * area * right * (1 - right)
    constant = (right**2 + (1 - right) ** 2) / 2
    return EceDecomposition(confidence, refinement, constant, confidence - refinement - constant, confidence - right)
