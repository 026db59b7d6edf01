"""Refinement: how well confidence separates right answers from wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.errors import CalibrationDataError
from calibrators.metrics.rows import TopLabels, top_labels


def refinement_auroc(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> float:
    """Probability that a right answer has a higher confidence than a wrong one, ties counted half.

    Calibration alone says nothing about use: a model that always answers with its accuracy is calibrated, and scores ½
    here. A calibrator that keeps the order of confidences leaves this as it was.

    Args:
        probabilities: (N, K), rows sum to one; at least one right and one wrong answer.
        labels: (N,) integers in 0 … K−1.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.

    Returns:
        In [0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types or values; all answers right, or all wrong.

    References:
        Singh et al. (2021), On the dark side of calibration for modern neural networks, section 3.

    Example:
        >>> refinement_auroc([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        1.0
    """
    rows = top_labels(probabilities, labels, sample_weight, predicted)
    weight = np.ones(len(rows.correct)) if rows.weight is None else rows.weight
    value = auroc_statistic(rows)(weight)
    if math.isnan(value):
        raise CalibrationDataError(
            "Refinement is not defined",
            where="labels",
            found="all predicted right" if rows.correct.all() else "all predicted wrong",
            expected="right and wrong answers both",
        )
    return value


def auroc_statistic(rows: TopLabels) -> Callable[[Doubles], float]:
    """The area as a function of the rows' weights (N,), sorted once; NaN where it is not defined."""
    rank = np.unique(rows.confidence, return_inverse=True)[1]
    size = int(rank.max()) + 1
    right_rank, wrong_rank = rank[rows.correct], rank[~rows.correct]

    def statistic(weight: Doubles) -> float:
        right = np.bincount(right_rank, weight[rows.correct], size)
        wrong = np.bincount(wrong_rank, weight[~rows.correct], size)
        pairs = right.sum() * wrong.sum()
        if pairs == 0:
            return math.nan
        return float(right @ (np.cumsum(wrong) - wrong / 2) / pairs)

    return statistic
