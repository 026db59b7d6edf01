"""Terms of the calibration error of an overconfident model: confidence, refinement and a constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators.arrays import ArrayLike
from calibrators.metrics.refinement import auroc_statistic, require_both
from calibrators.metrics.rows import top_labels, weighted_mean


@dataclass(frozen=True, slots=True)
class EceDecomposition:
    """Terms of equation 9, with π the share of right answers and r the refinement AUROC.

    Attributes:
        confidence: α, the mean confidence.
        refinement: β = 2 r π (1 − π).
        constant: γ = (π² + (1 − π)²) / 2.
        value: α − β − γ, the calibration error by that equation.
        gap: Mean confidence − accuracy, the error if every bin is overconfident (equation 7). It differs from ``value``
            as accuracy differs from the expected accuracy of telling right from wrong.
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
    """Split the calibration error of an overconfident model into confidence, refinement and constant terms.

    The paper replaces accuracy by the accuracy of telling right answers from wrong ones by a threshold on confidence,
    averaged over all thresholds: ½ + π(1 − π)(2r − 1). Use the terms to compare models (does a method lower confidence,
    or separate better?), and `expected_calibration_error` to compute an error.

    Raises:
        CalibrationDataError: Also if all answers are right, or all wrong.

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
