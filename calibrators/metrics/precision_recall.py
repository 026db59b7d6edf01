"""Precision and recall at thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
from calibrators.errors import CalibrationDataError
from calibrators.metrics.rows import tied_runs, top_labels
from calibrators.validation import check_count


@dataclass(frozen=True, slots=True, eq=False)
class PrecisionRecallCurve:
    """One entry per threshold, from the strictest to the one that takes every row; P thresholds.

    Attributes:
        threshold: (P,) confidences that occur, falling; rows at or above them are taken.
        precision: (P,) share of right answers among the rows taken.
        recall: (P,) share of all right answers that are taken, rising to one.
        flagged: (P,) share of all weight that is taken, rising to one.
    """

    threshold: Doubles
    precision: Doubles
    recall: Doubles
    flagged: Doubles


def precision_recall_curve(
    probabilities: ArrayLike,
    labels: ArrayLike,
    points: int = 200,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
) -> PrecisionRecallCurve:
    """Return precision and recall of the rows at or above thresholds, at most ``points`` of them (3 to 1,000,000).

    With ``positive`` the right answers are the rows of that class, and the thresholds are its probabilities. If there
    are more confidences than ``points``, half of the thresholds are spaced evenly in the share of rows taken and half
    geometrically, so that a rare class has thresholds among its few top rows.

    Raises:
        CalibrationDataError: Also if no answer is right: recall is not defined then.

    Example:
        >>> curve = precision_recall_curve([[0.1, 0.9], [0.2, 0.8], [0.7, 0.3]], [1, 0, 1], positive=1)
        >>> curve.threshold.tolist(), curve.precision.round(3).tolist(), curve.recall.tolist()
        ([0.9, 0.8, 0.3], [1.0, 0.5, 0.667], [0.5, 0.5, 1.0])
    """
    check_count(points, "points", least=3, most=1_000_000)
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    if not rows.correct.any():
        raise CalibrationDataError(
            "Recall is not defined",
            where="labels",
            found="no row in which the judged label is right",
            expected="at least one",
        )
    order, starts = tied_runs(rows.confidence, descending=True)
    weight = rows.weights()[order]
    taken = np.cumsum(np.add.reduceat(weight, starts))
    right = np.cumsum(np.add.reduceat(weight * rows.correct[order], starts))
    share = taken / taken[-1]
    if len(starts) <= points:
        chosen = np.arange(len(starts))
    else:
        sought = np.concatenate(
            [np.linspace(share[0], 1, points // 2), np.geomspace(share[0], 1, points - points // 2)]
        )
        # The slack undoes rounding by an ulp, so that weights act like repeated rows.
        chosen = np.unique(np.searchsorted(share, sought * (1 - 1e-12)))
    return PrecisionRecallCurve(
        rows.confidence[order[starts[chosen]]].astype(np.float64),
        right[chosen] / taken[chosen],
        right[chosen] / right[-1],
        share[chosen],
    )
