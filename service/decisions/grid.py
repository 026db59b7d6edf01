"""Candidate thresholds, chosen from fit rows alone, and how rows fall among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from candor.contract.certificates import Threshold
from service.decisions.decide import order_keys
from service.decisions.rows import ScoredRows

GRID_POINTS: Final = 200
"""Candidate thresholds, at most."""

_EVERY_ROW: Final = order_keys(np.zeros(1, np.float32), np.full(1, -math.inf, np.float32))


@dataclass(frozen=True, slots=True)
class Grid:
    """Candidate thresholds, strictest first, and what fit rows say about the rows at or above each.

    Attributes:
        keys: The candidates as `order_keys`, uint64 of shape (G,), falling; the last takes every row. Empty without
            fit rows.
        floor: Smallest positive propensity at or above each: the rate of an even sample of those rows, non-increasing.
        volume: Share of fit rows at or above each.
        errors: Fit rows at or above each that are not positive, or whose label is not known; weighted.
        rows: Fit rows at or above each whose label was sought; weighted.
    """

    keys: NDArray[np.uint64]
    floor: NDArray[np.float64]
    volume: NDArray[np.float64]
    errors: NDArray[np.float64]
    rows: NDArray[np.float64]

    def cells(self, rows: ScoredRows) -> NDArray[np.intp]:
        """Return the index of the strictest candidate that takes each row; 0 throughout without candidates."""
        return cells_of(self.keys, order_keys(rows.probability, rows.score))

    def index(self, threshold: Threshold) -> int:
        """Return the index of a threshold that is one of the candidates."""
        return int(cells_of(self.keys, key_of(threshold))[0])

    def threshold(self, index: int) -> Threshold:
        """Return a candidate as the pair that is served."""
        probability, score = pairs(self.keys[index : index + 1])
        return Threshold.at(float(probability[0]), float(score[0]))


def make_grid(fit: ScoredRows, certify: ScoredRows) -> Grid:
    """Choose candidates at ranks of the fit rows: half of them spaced evenly, half geometrically for rare classes.

    Args:
        fit: Rows that choose.
        certify: Rows that will test. Of these only propensities are read, and only where no unlabelled rows are given.
    """
    keys = order_keys(fit.probability, fit.score)
    ordered = np.sort(keys)[::-1]
    size = len(keys)
    half = (GRID_POINTS - 1) // 2
    ranks = np.concatenate([np.linspace(1, size, half), np.geomspace(1, size, half)]) if size else np.empty(0)
    chosen = ordered[ranks.astype(np.intp) - 1] if size else ordered
    candidates = np.unique(np.concatenate([chosen, _EVERY_ROW]))[::-1] if size else ordered
    return _grid(candidates, keys, fit, certify)


def grid_at(thresholds: Sequence[Threshold], fit: ScoredRows, certify: ScoredRows) -> Grid:
    """Return the existing candidates, and the candidate that takes every row.

    Args:
        thresholds: The candidates.
        fit: Rows that say how often labels are sought at or above each.
        certify: Rows that will test; read as by `make_grid`.
    """
    candidates = np.unique(np.concatenate([*(key_of(threshold) for threshold in thresholds), _EVERY_ROW]))[::-1]
    return _grid(candidates, order_keys(fit.probability, fit.score), fit, certify)


def key_of(threshold: Threshold) -> NDArray[np.uint64]:
    """Return a threshold as `order_keys` has it, shape (1,)."""
    return order_keys(*(np.array([number], np.float32) for number in threshold.pair))


def _grid(candidates: NDArray[np.uint64], keys: NDArray[np.uint64], fit: ScoredRows, certify: ScoredRows) -> Grid:
    size, points = len(keys), len(candidates)
    cells = cells_of(candidates, keys)

    weight = fit.was_sought() * fit.weight
    rows = at_or_above(cells, points, weight)
    errors = at_or_above(cells, points, weight * ~(fit.positive & fit.known()))
    # Weighted rows count as the number of equal rows that is worth as much (Kish), or precision would look too sure.
    squares = at_or_above(cells, points, weight**2)
    worth = np.divide(rows, squares, out=np.ones(points), where=squares > 0)
    return Grid(
        keys=candidates,
        floor=_floor(candidates, cells, fit, certify),
        volume=at_or_above(cells, points) / max(size, 1),
        errors=errors * worth,
        rows=rows * worth,
    )


def cells_of(candidates: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the index of the strictest candidate that takes each row; the number of candidates where none does."""
    return len(candidates) - np.searchsorted(candidates[::-1], keys, side="right")


def at_or_above(cells: NDArray[np.intp], points: int, weight: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Return, per candidate, the number (or weight) of the rows in its cell and all stricter ones."""
    return np.cumsum(np.bincount(cells, weight, minlength=points + 1)[:points])


def lowest_propensity(points: int, cells: NDArray[np.intp], propensity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, per candidate, the smallest positive propensity of the rows at or above it; 1 without such rows."""
    lowest = np.ones(points + 1)
    known = propensity > 0
    np.minimum.at(lowest, cells[known], propensity[known])
    return np.minimum.accumulate(lowest[:-1])


def pairs(keys: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Undo `order_keys`."""
    halves = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    probability, score = (
        np.where(half >> np.uint32(31), half ^ np.uint32(0x80000000), ~half).view(np.float32) for half in halves
    )
    return probability, score


def _floor(
    candidates: NDArray[np.uint64], cells: NDArray[np.intp], fit: ScoredRows, certify: ScoredRows
) -> NDArray[np.float64]:
    floor = lowest_propensity(len(candidates), cells, fit.propensity)
    if certify.labelled is None:
        # Without the unlabelled rows the rarest propensity may stand among certify rows only.
        others = cells_of(candidates, order_keys(certify.probability, certify.score))
        floor = np.minimum(floor, lowest_propensity(len(candidates), others, certify.propensity))
    return floor
