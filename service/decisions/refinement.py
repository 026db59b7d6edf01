"""Refinement: how well confidence separates right from wrong answers, with intervals for grouped rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

MIN_GROUPS: Final = 25
"""Minimum number of groups with a right answer, and with a wrong one, for an interval."""

_COVERAGE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Refinement:
    """The refinement AUROC of both sides on the same rows.

    Attributes:
        before: AUROC of the active revision; None if all its answers are right, or all wrong.
        after: AUROC of the candidate; None likewise.
        interval_before: 95 % interval of `before`; None if there are too few groups, or the value is 0 or 1.
        interval_after: 95 % interval of `after`; None likewise.
        difference_interval: 95 % interval of after − before; None if there are too few groups.
    """

    before: float | None
    after: float | None
    interval_before: tuple[float, float] | None
    interval_after: tuple[float, float] | None
    difference_interval: tuple[float, float] | None


def compare_refinement(
    before: tuple[NDArray[np.floating[Any]], NDArray[np.bool_]],
    after: tuple[NDArray[np.floating[Any]], NDArray[np.bool_]],
    groups: NDArray[np.int64],
) -> Refinement:
    """Return the AUROC of right against wrong answers by confidence before and after; ties count half.

    The contribution of each row to the area (its placement among the rows of the other kind) is summed by group; these
    sums give the variance of the area. The interval of a side is calculated on the log-odds of its area, the interval
    of the difference on the areas: a calibrator that keeps the order of confidences has a difference of exactly 0.

    Args:
        before: Confidence in [0, 1] of the active revision and whether its answer is right, each of shape (N,).
        after: The same for the candidate, on the same rows.
        groups: Group numbers, shape (N,).

    References:
        DeLong, E. R., DeLong, D. M. and Clarke-Pearson, D. L. (1988). Comparing the areas under two or more correlated
        receiver operating characteristic curves. Biometrics 44, 837–845. Obuchowski, N. A. (1997). Nonparametric
        analysis of clustered ROC curve data. Biometrics 53, 567–578.

    Example:
        >>> right = np.array([True, True, False])
        >>> sides = (np.array([0.9, 0.8, 0.6]), right), (np.array([0.7, 0.5, 0.6]), right)
        >>> found = compare_refinement(*sides, np.arange(3))
        >>> found.before, found.after, found.interval_before
        (1.0, 0.5, None)
    """
    group = np.unique(groups, return_inverse=True)[1]
    areas, pulls = [], []
    for confidence, right in (before, after):
        found = _area(confidence, right, group)
        areas.append(None if found is None else found[0])
        pulls.append(None if found is None else found[1])
    enough = all(
        len(np.unique(group[right == kind])) >= MIN_GROUPS for _, right in (before, after) for kind in (True, False)
    )
    if not enough or pulls[0] is None or pulls[1] is None or areas[0] is None or areas[1] is None:
        return Refinement(areas[0], areas[1], None, None, None)
    reach = _error(pulls[1] - pulls[0])
    difference = areas[1] - areas[0]
    return Refinement(
        areas[0],
        areas[1],
        _interval(areas[0], _error(pulls[0])),
        _interval(areas[1], _error(pulls[1])),
        (difference - reach, difference + reach),
    )


def _area(
    confidence: NDArray[np.floating[Any]], right: NDArray[np.bool_], group: NDArray[np.intp]
) -> tuple[float, NDArray[np.float64]] | None:
    """Return the area and each group's contribution to its error, (G,); None if all answers are right, or all wrong."""
    rights, wrongs = int(right.sum()), int((~right).sum())
    if not rights or not wrongs:
        return None
    order = np.argsort(confidence)
    ordered, kinds = confidence[order], right[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))  # of each run of equal values
    sizes = np.diff(first, append=len(ordered))
    of_rights = np.add.reduceat(kinds.astype(np.int64), first)
    below = (_half_way(sizes - of_rights) / wrongs, 1 - _half_way(of_rights) / rights)
    placed = np.empty(len(right))
    placed[order] = np.where(kinds, np.repeat(below[0], sizes), np.repeat(below[1], sizes))
    area = float(placed[right].mean())
    return area, np.bincount(group, (placed - area) / np.where(right, rights, wrongs)).astype(np.float64)


def _half_way(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sum of all counts before each count, plus half of it."""
    half_way: NDArray[np.float64] = np.cumsum(counts) - counts / 2
    return half_way


def _error(pulls: NDArray[np.float64]) -> float:
    """Return the half-width of a 95 % interval."""
    groups = len(pulls)
    deviation = np.sqrt(float(pulls @ pulls) * groups / (groups - 1))
    return float(scipy.special.stdtrit(groups - 1, (1 + _COVERAGE) / 2) * deviation)


def _interval(area: float, reach: float) -> tuple[float, float] | None:
    if not 0 < area < 1:
        return None
    odds, step = np.log(area / (1 - area)), reach / (area * (1 - area))
    return float(1 / (1 + np.exp(step - odds))), float(1 / (1 + np.exp(-step - odds)))
