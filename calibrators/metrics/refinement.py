"""Refinement: how well confidence separates right answers from wrong ones."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.errors import CalibrationDataError
from calibrators.metrics.rows import Statistic, TopLabels, tied_runs, top_labels
from calibrators.validation import check_choice

Detect: TypeAlias = Literal["right", "wrong"]
DETECTS: tuple[Detect, ...] = ("right", "wrong")


def refinement_auroc(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
) -> float:
    """Probability that a right answer has a higher confidence than a wrong one, ties counted half.

    Calibration alone says nothing about use: a model that always answers with its accuracy is calibrated, and scores ½
    here. A calibrator that keeps the order of confidences leaves this as it was. With ``positive`` it is the area
    under the ROC curve of that class against all others.

    Args:
        probabilities: (N, K), rows sum to one; at least one right and one wrong answer.
        labels: (N,) integers in 0 … K−1.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.
        positive: None: the predicted label; a class: its probability, against whether it is the true one.

    Returns:
        In [0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options; all answers right, or all wrong; with
            ``positive``, all labels of that class, or none.

    References:
        Singh et al. (2021), On the dark side of calibration for modern neural networks, section 3.

    Example:
        >>> refinement_auroc([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        1.0
    """
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    require_both(rows)
    return float(auroc_statistic(rows)(rows.weights()))


def refinement_aupr(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
    detect: Detect = "right",
) -> float:
    """Area under the precision-recall curve of telling right from wrong answers by confidence (average precision).

    Σ over confidences, from the highest, of precision · gain in recall; rows of equal confidence enter together.
    Chance level is the share of what is detected, so `refinement_auroc` compares better between models; with
    ``"wrong"`` this one shows how well rare errors are found, with ``positive`` a rare class.

    Args:
        probabilities: (N, K), rows sum to one; at least one right and one wrong answer.
        labels: (N,) integers in 0 … K−1.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.
        positive: None: the predicted label; a class: its probability, against whether it is the true one.
        detect: ``"right"``: right answers, by high confidence; ``"wrong"``: wrong ones, by low confidence.

    Returns:
        In (0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types, values or options; all answers right, or all wrong; with
            ``positive``, all labels of that class, or none.

    References:
        Davis, Goadrich (2006), The relationship between precision-recall and ROC curves; for errors: Hendrycks,
        Gimpel (2017), A baseline for detecting misclassified and out-of-distribution examples, section 2.

    Example:
        >>> refinement_aupr([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 1, 0])
        0.8333333333333333
    """
    check_choice(detect, DETECTS, "detect")
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    require_both(rows)
    return float(aupr_statistic(rows, detect)(rows.weights()))


def require_both(rows: TopLabels) -> None:
    """Refuses rows that are all right or all wrong: they have no refinement."""
    if rows.correct.all() or not rows.correct.any():
        raise CalibrationDataError(
            "Refinement is not defined",
            where="labels",
            found=f"the label that is judged is {'right' if rows.correct.all() else 'wrong'} in every row",
            expected="right and wrong answers both",
        )


def auroc_statistic(rows: TopLabels) -> Statistic:
    """The area as a function of the rows' weights, sorted once; NaN where it is not defined."""
    order, starts = tied_runs(rows.confidence)
    correct = rows.correct[order]

    def statistic(weight: Doubles) -> Doubles:
        weight = np.take(weight, order, axis=-1)
        right = np.add.reduceat(weight * correct, starts, axis=-1)
        wrong = np.add.reduceat(weight * ~correct, starts, axis=-1)
        pairs = right.sum(axis=-1) * wrong.sum(axis=-1)
        ordered = np.vecdot(right, np.cumsum(wrong, axis=-1) - wrong / 2)
        return np.asarray(np.divide(ordered, pairs, out=np.full_like(pairs, np.nan), where=pairs > 0))

    return statistic


def aupr_statistic(rows: TopLabels, detect: Detect) -> Statistic:
    """Average precision as a function of the rows' weights, sorted once; NaN where it is not defined."""
    check_choice(detect, DETECTS, "detect")
    order, starts = tied_runs(rows.confidence, descending=detect == "right")
    wanted = rows.correct[order] == (detect == "right")

    def statistic(weight: Doubles) -> Doubles:
        weight = np.take(weight, order, axis=-1)
        found = np.add.reduceat(weight * wanted, starts, axis=-1)
        taken = np.cumsum(np.add.reduceat(weight, starts, axis=-1), axis=-1)
        precision = np.cumsum(found, axis=-1) / (taken + (taken == 0))
        total = found.sum(axis=-1)
        area = np.vecdot(found, precision)
        return np.asarray(np.divide(area, total, out=np.full_like(total, np.nan), where=total > 0))

    return statistic
