"""Refinement: how well confidence separates right answers from wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.errors import CalibrationDataError
from calibrators.metrics.rows import TopLabels, top_labels
from calibrators.validation import check_choice

Detect: TypeAlias = Literal["right", "wrong"]
DETECTS: tuple[Detect, ...] = ("right", "wrong")


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
    require_both(rows)
    return auroc_statistic(rows)(np.ones(len(rows.correct)) if rows.weight is None else rows.weight)


def refinement_aupr(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    detect: Detect = "right",
) -> float:
    """Area under the precision-recall curve of telling right from wrong answers by confidence (average precision).

    Σ over confidences, from the highest, of precision · gain in recall; rows of equal confidence enter together.
    Chance level is the share of what is detected, so `refinement_auroc` compares better between models; with
    ``"wrong"`` this one shows how well rare errors are found.

    Args:
        probabilities: (N, K), rows sum to one; at least one right and one wrong answer.
        labels: (N,) integers in 0 … K−1.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.
        detect: ``"right"``: right answers, by high confidence; ``"wrong"``: wrong ones, by low confidence.

    Returns:
        In (0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options; all answers right, or all wrong.

    References:
        Davis, Goadrich (2006), The relationship between precision-recall and ROC curves; for errors: Hendrycks,
        Gimpel (2017), A baseline for detecting misclassified and out-of-distribution examples, section 2.

    Example:
        >>> refinement_aupr([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 1, 0])
        0.8333333333333333
    """
    check_choice(detect, DETECTS, "detect")
    rows = top_labels(probabilities, labels, sample_weight, predicted)
    require_both(rows)
    return aupr_statistic(rows, detect)(np.ones(len(rows.correct)) if rows.weight is None else rows.weight)


def require_both(rows: TopLabels) -> None:
    """Refuses rows that are all right or all wrong: they have no refinement."""
    if rows.correct.all() or not rows.correct.any():
        raise CalibrationDataError(
            "Refinement is not defined",
            where="labels",
            found="all predicted right" if rows.correct.all() else "all predicted wrong",
            expected="right and wrong answers both",
        )


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


def aupr_statistic(rows: TopLabels, detect: Detect) -> Callable[[Doubles], float]:
    """Average precision as a function of the rows' weights (N,), sorted once; NaN where it is not defined."""
    check_choice(detect, DETECTS, "detect")
    rank = np.unique(rows.confidence, return_inverse=True)[1]
    wanted = rows.correct
    if detect == "right":
        rank = rank.max() - rank
    else:
        wanted = ~wanted
    size = int(rank.max()) + 1
    wanted_rank = rank[wanted]

    def statistic(weight: Doubles) -> float:
        found = np.bincount(wanted_rank, weight[wanted], size)
        if not found.any():
            return math.nan
        taken = np.cumsum(np.bincount(rank, weight, size))
        precision = np.divide(np.cumsum(found), taken, out=np.zeros(size), where=taken > 0)
        return float(found @ precision / found.sum())

    return statistic
