"""Spiegelhalter's test: does the Brier score match what the probabilities predict?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from calibrators.arrays import ArrayLike
from calibrators.chunks import probability_chunks
from calibrators.effective_rows import WeightKind
from calibrators.errors import CalibrationDataError
from calibrators.metrics.rows import check_rows, check_weight_kind, noise_weight, top_labels


@dataclass(frozen=True, slots=True)
class SpiegelhalterTest:
    """Outcome of the test.

    Attributes:
        statistic: z; above zero the score is worse than stated (overconfident), below zero better.
        p_value: Two-sided, from the normal distribution.
    """

    statistic: float
    p_value: float


def spiegelhalter_test(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    positive: int | None = None,
    weight_kind: WeightKind = "importance",
) -> SpiegelhalterTest:
    """Compare the Brier score with its mean and variance under perfect calibration.

    If the probabilities hold, a row's score Σ_k (p_k − y_k)² has mean 1 − Σ p² and variance 4 (Σ p³ − (Σ p²)²). With
    two classes this is Spiegelhalter's z; the form for K classes follows from the same two moments, and ``positive``
    tests one class against the rest. Importance weights enter the variance squared. The test sees only errors that move
    the Brier score on average: a large p-value is not a proof of calibration.

    Raises:
        CalibrationDataError: Also if every row says 0, 1 or the same for all classes and none is contradicted.

    References:
        Spiegelhalter (1986), Probabilistic prediction in patient management and clinical trials, section 4.

    Example:
        >>> test = spiegelhalter_test([[0.9, 0.1]] * 10, [0, 0, 0, 0, 0, 0, 0, 1, 1, 1])
        >>> round(test.statistic, 3), round(test.p_value, 3)
        (2.108, 0.035)
    """
    matrix, truth, weight = check_rows(probabilities, labels, sample_weight)
    check_weight_kind(sample_weight, weight_kind)
    if positive is not None:
        rows = top_labels(matrix, truth, weight, positive=positive)
        stated = rows.confidence.astype(np.float64)
        matrix, truth, weight = np.stack([1 - stated, stated], axis=1), rows.correct.astype(np.int64), rows.weight
    noise = noise_weight(weight, len(truth), weight_kind)
    excess = variance = 0.0
    for part, chunk in probability_chunks(matrix):
        values = chunk.astype(np.float64)
        values /= np.add.reduce(values, axis=1, keepdims=True)
        squares = np.vecdot(values, values)
        own = values[np.arange(len(values)), truth[part]]
        spread = np.vecdot(values, (values - squares[:, None]) ** 2)
        share = np.ones(len(values)) if weight is None else weight[part]
        excess += float(share @ (squares - own))
        variance += float(noise[part] @ spread)
    scale = 1e-14 * (float(len(truth)) if weight is None else float(weight.sum()))
    if variance <= scale * scale:
        if abs(excess) <= scale:
            raise CalibrationDataError(
                "Nothing to test",
                where="probabilities",
                found="certain or uniform in every row",
                expected="rows whose Brier score is uncertain",
            )
        return SpiegelhalterTest(math.copysign(math.inf, excess), 0.0)
    statistic = excess / math.sqrt(variance)
    return SpiegelhalterTest(statistic, float(2 * scipy.special.ndtr(-abs(statistic))))
