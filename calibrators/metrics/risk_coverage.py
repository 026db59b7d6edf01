"""Risk against coverage: what is gained by answering only where confidence is high."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from calibrators.arrays import ArrayLike, Doubles
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
    rows = top_labels(probabilities, labels, sample_weight, predicted)
    return area_statistic(rows)(np.ones(len(rows.correct)) if rows.weight is None else rows.weight)


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
    rows = top_labels(probabilities, labels, sample_weight, predicted)
    return excess_statistic(rows)(np.ones(len(rows.correct)) if rows.weight is None else rows.weight)


def area_statistic(rows: TopLabels) -> Callable[[Doubles], float]:
    """The area as a function of the rows' weights (N,), sorted once.

    Over a run of equal confidence from coverage a to b the errors grow evenly, E(c) = E_a + s (c − a), and
    ∫ E(c)/c dc = s (b − a) + (E_a − s a) log(b / a).
    """
    rank = np.unique(rows.confidence, return_inverse=True)[1]
    rank = rank.max() - rank
    size, wrong_rank = int(rank.max()) + 1, rank[~rows.correct]

    def statistic(weight: Doubles) -> float:
        added, wrong = np.bincount(rank, weight, size), np.bincount(wrong_rank, weight[~rows.correct], size)
        taken = added > 0
        added, wrong = added[taken], wrong[taken]
        upper, errors = np.cumsum(added), np.cumsum(wrong)
        rate, lower = wrong / added, upper[:-1]
        area = wrong.sum() + float((errors[:-1] - rate[1:] * lower) @ np.log1p(added[1:] / lower))
        return float(area / upper[-1])

    return statistic


def excess_statistic(rows: TopLabels) -> Callable[[Doubles], float]:
    """The area less that of the best order, as a function of the rows' weights (N,)."""
    area = area_statistic(rows)

    def statistic(weight: Doubles) -> float:
        risk = min(float(weight[~rows.correct].sum() / weight.sum()), 1.0)
        best = risk + (1 - risk) * math.log1p(-risk) if risk < 1 else 1.0
        return max(area(weight) - best, 0.0)

    return statistic
