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
    """Return the probability that a right answer has a higher confidence than a wrong one; ties count half.

    Calibration alone says nothing about use: a model that always answers with its accuracy is calibrated, and scores ½
    here. A calibrator that keeps the order of confidences leaves this score unchanged. With ``positive`` it is the area
    under the ROC curve of that class against all others.

    Raises:
        CalibrationDataError: Also if all answers are right, or all wrong.

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
    """Return the area under the precision-recall curve of detecting right answers by confidence (average precision).

    Σ over confidences, from the highest, of precision · gain in recall, in (0, 1]; rows of equal confidence enter
    together. ``detect="wrong"`` detects wrong answers, by low confidence. Chance level is the share of what is
    detected, so `refinement_auroc` compares better between models; this score shows how well rare errors, or with
    ``positive`` a rare class, are found.

    Raises:
        CalibrationDataError: Also if all answers are right, or all wrong.

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
    """Refuse rows that are all right or all wrong: their refinement is not defined."""
    if rows.correct.all() or not rows.correct.any():
        raise CalibrationDataError(
            "Refinement is not defined",
            where="labels",
            found=f"such that the judged label is {'right' if rows.correct.all() else 'wrong'} in every row",
            expected="both right and wrong answers",
        )


def auroc_statistic(rows: TopLabels) -> Statistic:
    """Return the area as a function of the rows' weights, sorted once; NaN if it is not defined."""
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
    """Return average precision as a function of the rows' weights, sorted once; NaN if it is not defined."""
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
