"""What labelled rows say of each candidate threshold: the rows of a metric's denominator, and the errors among them.

Labels may have been sought for some rows only. Every row then carries one uniform number u, below its propensity when
its label was sought and above it otherwise: over the seeking of labels u is uniform whatever the row is, so that the
rows with u < f are an even sample of all rows wherever no propensity is below f. A row of the sample whose label is not
known counts as it hurts most; `docs/explanation/statistics.md` has the argument.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from candor.contract.conditions import Metric
from service.decisions.grid import at_or_above
from service.decisions.rows import ScoredRows


def seed_of(seed: int, look: int) -> int:
    """Return the seed of one look's draws, so that no installation keeps an unlucky one for ever.

    Args:
        seed: The installation's.
        look: Number of the look among all of its model; fixed before any label is seen.
    """
    return int(np.random.SeedSequence([seed, look]).generate_state(1, np.uint64)[0])


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows that test one metric at each of G candidates.

    Attributes:
        n: Rows in the denominator, int64 of shape (G,); those without a label where that hurts are among them.
        errors: Errors among them.
        known: Rows in the denominator whose label is known.
        known_errors: Errors among those.
        best: Rows in the denominator if every unknown label were the one that helps most.
    """

    n: NDArray[np.int64]
    errors: NDArray[np.int64]
    known: NDArray[np.int64]
    known_errors: NDArray[np.int64]
    best: NDArray[np.int64]


class Sample:
    """One row of each group, with its draw, beside a list of candidates.

    Args:
        rows: Rows that test, N of them.
        cells: Index of the strictest candidate that takes each row, shape (N,); below G, since the last takes all.
        floor: Rate at which rows at or above each candidate enter its sample, non-increasing, shape (G,).
        seed: Of the draws; fixed before any label is seen.

    Attributes:
        size: Rows of known propensity, one of each group.
    """

    def __init__(self, rows: ScoredRows, cells: NDArray[np.intp], floor: NDArray[np.float64], seed: int) -> None:
        points = len(floor)
        which = rows.sample(seed, known_propensity=True)
        tested = rows.take(which)
        self._points = points
        self._cells = cells[which]
        self.size = size = len(tested)
        # Where unlabelled rows are given too, the flag rate is about all rows, whatever their propensity is.
        self._traffic = None if rows.labelled is None else cells[rows.sample(seed, known_propensity=False)]
        propensity = tested.propensity
        # Nobody sought a label at propensity 0, whatever the columns say.
        sought = tested.was_sought() & (propensity > 0)
        labelled = tested.known() & (propensity > 0)
        draw = np.random.default_rng((seed, 1)).random(size)
        uniform = np.where(sought, draw * propensity, propensity + draw * (1.0 - propensity))
        # The floor falls as candidates loosen: a row is in the samples of its own cell's candidate up to `last`.
        self._last = points - np.searchsorted(floor[::-1], uniform, side="right")
        self._even = uniform < floor[-1] if points else np.zeros(size, dtype=np.bool_)
        self._right = tested.positive & labelled
        self._wrong = ~tested.positive & labelled
        self._unknown = ~labelled

    def count(self, metric: Metric) -> Counts:
        """Count the rows that speak of a metric.

        Args:
            metric: Precision and selective risk are about the rows at or above a candidate (an error is not positive),
                recall about positives (an error is below), the false-positive rate about negatives and the flag rate
                about all rows, labelled or not (an error is at or above).
        """
        if metric == "flag_rate":
            return self._flagged()
        if metric == "recall":
            return self._of_class(self._right, above=False)
        if metric == "false_positive_rate":
            return self._of_class(self._wrong, above=True)
        inside = self._cells < self._last
        known, wrong = self._inside(inside & ~self._unknown), self._inside(inside & self._wrong)
        unknown = self._inside(inside & self._unknown)
        return Counts(known + unknown, wrong + unknown, known, wrong, known + unknown)

    def _inside(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        cells, last = self._cells[chosen], self._last[chosen]
        counts: NDArray[np.int64] = at_or_above(cells, self._points) - at_or_above(last, self._points)
        return counts

    def _of_class(self, members: NDArray[np.bool_], *, above: bool) -> Counts:
        """Count the rows of one class, from a sample of all rows, and those on the wrong side of each candidate."""
        points = self._points
        known, unknown = self._even & members, self._even & self._unknown
        sides = (at_or_above(self._cells[which], points) for which in (known, unknown))
        totals = np.full(points, known.sum()), np.full(points, unknown.sum())
        wrong, unknown_wrong = (side if above else total - side for side, total in zip(sides, totals, strict=True))
        return Counts(
            totals[0] + unknown_wrong, wrong + unknown_wrong, totals[0], wrong, totals[0] + totals[1] - unknown_wrong
        )

    def _flagged(self) -> Counts:
        """Count all rows, whatever their labels; where only labelled ones are given, those of an even sample."""
        cells = self._cells[self._even] if self._traffic is None else self._traffic
        flagged, rows = at_or_above(cells, self._points), np.full(self._points, len(cells))
        return Counts(rows, flagged, rows, flagged, rows)
