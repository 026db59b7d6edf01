"""Risk against coverage: what is gained by answering only where confidence is high."""

from __future__ import annotations

import math

import numpy as np

from calibrators.arrays import ArrayLike
from calibrators.metrics.rows import TopLabels, top_labels


def area_under_risk_coverage(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> float:
    """Mean error rate among the most confident share c of rows, over all c from 0 to 1 (AURC).

    Low where confidence puts the right answers first. Taken as the integral over c, with a fraction of a row allowed
    and rows of equal confidence mixed evenly: so neither the order of rows nor the scale of weights matters, and a
    weight of 2 equals a row repeated. The usual sum over whole rows is the same up to about (log N) / N.

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.

    Returns:
        In [0, 1].

    Raises:
        CalibrationDataError: Wrong shapes, types or values.

    References:
        Geifman, Uziel, El-Yaniv (2019), Bias-reduced uncertainty estimation for deep neural classifiers, section 2.

    Example:
        >>> area_under_risk_coverage([[0.9, 0.1], [0.9, 0.1]], [0, 1])
        0.5
    """
    return _area(top_labels(probabilities, labels, sample_weight, predicted))[0]


def excess_area_under_risk_coverage(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> float:
    """What of `area_under_risk_coverage` a perfect order of the same answers would save (E-AURC).

    With error rate e the best order, all right answers first, has an area of e + (1 − e) log(1 − e).

    Args:
        probabilities: (N, K), N ≥ 1, rows sum to one.
        labels: (N,) integers in 0 … K−1.
        sample_weight: (N,) importance weights of 0 or more, or None.
        predicted: (N,) predicted labels of a top-label method; None: the class of the largest probability.

    Returns:
        In [0, 1]; 0 where every right answer has a higher confidence than every wrong one.

    Raises:
        CalibrationDataError: Wrong shapes, types or values.

    References:
        Geifman, Uziel, El-Yaniv (2019), Bias-reduced uncertainty estimation for deep neural classifiers, section 2.

    Example:
        >>> excess_area_under_risk_coverage([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        0.0
    """
    area, risk = _area(top_labels(probabilities, labels, sample_weight, predicted))
    best = risk + (1 - risk) * math.log1p(-risk) if risk < 1 else 1.0
    return max(area - best, 0.0)


def _area(rows: TopLabels) -> tuple[float, float]:
    """The area, and the error rate over all rows.

    Over a run of equal confidence from coverage a to b the errors grow evenly, E(c) = E_a + s (c − a), and
    ∫ E(c)/c dc = s (b − a) + (E_a − s a) log(b / a).
    """
    order = np.argsort(rows.confidence)[::-1]
    confidence = rows.confidence[order]
    starts = np.flatnonzero(np.concatenate([[True], confidence[1:] != confidence[:-1]]))
    weight = np.ones(len(order)) if rows.weight is None else rows.weight[order]
    added = np.add.reduceat(weight, starts)
    wrong = np.add.reduceat(weight * ~rows.correct[order], starts)
    upper, errors = np.cumsum(added), np.cumsum(wrong)
    rate = wrong / added
    area = float(wrong.sum())
    if len(starts) > 1:
        lower = upper[:-1]
        area += float((errors[:-1] - rate[1:] * lower) @ np.log1p(added[1:] / lower))
    total = float(upper[-1])
    return area / total, float(errors[-1]) / total
