"""Risk against coverage: the gain from answering only at high confidence."""

from __future__ import annotations

import numpy as np
import scipy

from calibrators.arrays import ArrayLike, Doubles
from calibrators.metrics.rows import Statistic, TopLabels, tied_runs, top_labels


def area_under_risk_coverage(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> float:
    """Return the mean error rate among the most confident share c of rows, over all c from 0 to 1 (AURC), in [0, 1].

    Low if confidence ranks the right answers first. It is the integral over c, with fractions of a row allowed and rows
    of equal confidence mixed evenly, so a weight of 2 equals a repeated row. The usual sum over whole rows differs by
    about (log N) / N at most.

    References:
        Geifman, Uziel, El-Yaniv (2019), Bias-reduced uncertainty estimation for deep neural classifiers, section 2.

    Example:
        >>> area_under_risk_coverage([[0.9, 0.1], [0.9, 0.1]], [0, 1])
        0.5
    """
    rows = top_labels(probabilities, labels, sample_weight, predicted)
    return float(area_statistic(rows)(rows.weights()))


def excess_area_under_risk_coverage(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
) -> float:
    """Return the part of `area_under_risk_coverage` that a perfect order of the same answers would save (E-AURC).

    It is in [0, 1], and 0 if every right answer has a higher confidence than every wrong one. With error rate e the
    best order has an area of e + (1 − e) log(1 − e).

    References:
        Geifman, Uziel, El-Yaniv (2019), section 2.

    Example:
        >>> excess_area_under_risk_coverage([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        0.0
    """
    rows = top_labels(probabilities, labels, sample_weight, predicted)
    return float(excess_statistic(rows)(rows.weights()))


def area_statistic(rows: TopLabels) -> Statistic:
    """Return the area as a function of the rows' weights, sorted once.

    Over a run of equal confidence from coverage a to b the errors grow evenly, E(c) = E_a + s (c − a), and
    ∫ E(c)/c dc = s (b − a) + (E_a − s a) log(b / a). A run of weight zero adds nothing.
    """
    order, starts = tied_runs(rows.confidence, descending=True)
    failed = ~rows.correct[order]

    def statistic(weight: Doubles) -> Doubles:
        weight = np.take(weight, order, axis=-1)
        added = np.add.reduceat(weight, starts, axis=-1)
        wrong = np.add.reduceat(weight * failed, starts, axis=-1)
        upper, errors = np.cumsum(added, axis=-1), np.cumsum(wrong, axis=-1)
        rate = wrong / (added + (added == 0))
        lower = upper[..., :-1]
        # Before the first run there are no errors, and the logarithm does not count.
        growth = np.log1p(added[..., 1:] / (lower + (lower == 0)))
        area = errors[..., -1] + np.vecdot(errors[..., :-1] - rate[..., 1:] * lower, growth)
        return np.asarray(area / upper[..., -1])

    return statistic


def excess_statistic(rows: TopLabels) -> Statistic:
    """Return the area minus that of the best order, as a function of the rows' weights."""
    area, failed = area_statistic(rows), ~rows.correct

    def statistic(weight: Doubles) -> Doubles:
        risk = np.minimum(weight @ failed / weight.sum(axis=-1), 1)
        return np.asarray(np.maximum(area(weight) - risk - scipy.special.xlog1py(1 - risk, -risk), 0))

    return statistic
