"""Certificates that grow with labels: evidence that may be read at any time, so reading uses no look.

For each candidate t of a fixed grid, a capital W bets against H(t), "the metric at t breaks the promise". Each row
multiplies it by a factor with a mean of at most 1 under H(t), whatever came before; so W ever reaches 1/level with a
probability of at most the level (Ville 1939), however often it is read. A part of the capital is staked on one exact
test, at a number of rows that was planned before any of them was seen: there, little power is lost to a single look.
`docs/explanation/statistics.md` has the argument.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from candor.contract.conditions import Metric
from service.decisions.binomial import p_value
from service.decisions.counting import Sample
from service.decisions.grid import Grid
from service.decisions.rows import ScoredRows
from service.decisions.sequence import choose_start

RATES: Final = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""True rates of errors that the capital bets on, as shares of the tolerated one."""

STAKED: Final = 0.5
"""Share of the capital on the exact test at the planned number of rows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is fixed before any certify row is seen.

    Attributes:
        grid: Candidate thresholds, at least one, from fit rows alone.
        metric: Metric of the promise.
        tolerance: Largest rate of errors that keeps the promise.
        level: Largest probability that a threshold which breaks the promise is ever certified.
        rows: Number of certify rows, one of each group, at which the exact test is made.
        seed: Seed of the exact test's thinning.
    """

    grid: Grid
    metric: Metric
    tolerance: float
    level: float
    rows: int
    seed: int = 0

    @property
    def order(self) -> NDArray[np.intp]:
        """Candidates as they are tested: from that of the largest power at the planned rows, bolder and bolder."""
        points = np.arange(len(self.grid.keys))
        if self.metric == "recall":
            return points[::-1]
        if self.metric not in ("precision", "selective_risk"):
            return points
        expected = self.grid.volume * self.grid.floor * self.rows
        return points[choose_start(expected, self.grid.errors, self.grid.rows, self.tolerance, STAKED * self.level) :]


def certified(plan: Plan, rows: ScoredRows, floor: NDArray[np.float64] | None = None) -> int:
    """Return the index of the candidate that these rows certify, −1 for none.

    Args:
        plan: The plan.
        rows: Certify rows since the plan was fixed, in the order of predictions, up to any time; of each group the
            first. A label that was sought and has not come counts as the worst.
        floor: Smallest positive propensity that was in force at each prediction, shape (N,), known before it; None
            for 1. Rows of a smaller propensity count as the worst label.
    """
    order = plan.order
    reached = evidence(plan, rows, floor)[order] >= -np.log(plan.level)
    steps = len(reached) if reached.all() else int(reached.argmin())
    return int(order[steps - 1]) if steps else -1


def evidence(plan: Plan, rows: ScoredRows, floor: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return ln W of each candidate, shape (G,); arguments as for `certified`."""
    cells = plan.grid.cells(rows)
    bets = _spread(_bets(plan, rows, cells, np.ones(len(rows)) if floor is None else floor))
    if len(rows) < plan.rows:
        return bets
    first = slice(plan.rows)
    counts = Sample(rows.take(first), cells[first], plan.grid.floor, plan.seed).count(plan.metric)
    won = p_value(counts.errors, counts.n, plan.tolerance) <= STAKED * plan.level
    return np.asarray(np.where(won, np.logaddexp(bets, -np.log(plan.level)), bets))


def needed(plan: Plan, rows: ScoredRows, floor: NDArray[np.float64] | None = None) -> int:
    """Return how many further rows in the denominator, none an error, let the bets certify the first candidate."""
    cells, at, q = plan.grid.cells(rows), plan.order[0], plan.tolerance
    capital = _bets(plan, rows, cells, np.ones(len(rows)) if floor is None else floor)[:, at]
    gain = np.log1p((1 - np.array(RATES)) / (1 - q) * q)

    def enough(more: int) -> bool:
        return bool(_spread(capital + more * gain) >= -np.log(plan.level))

    high = 1
    while not enough(high):
        high *= 2
    return bisect_left(range(high + 1), True, key=enough)


def _spread(capital: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the capital that is spread over `RATES`, from that of each bet, shape (R, …)."""
    return np.asarray(np.logaddexp.reduce(capital, axis=0) + np.log1p(-STAKED) - np.log(len(RATES)), np.float64)


def _bets(plan: Plan, rows: ScoredRows, cells: NDArray[np.intp], floor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the capital of each bet of `RATES` on every row, shape (R, G)."""
    q, points = plan.tolerance, len(plan.grid.keys)
    reached = rows.propensity >= floor
    labelled = rows.known() & reached
    right, wrong = labelled & rows.positive, labelled & ~rows.positive
    unknown = (~reached & ~np.isnan(rows.propensity)) | (rows.was_sought() & reached & ~labelled)
    # A label stands for floor/propensity times its row, so every row counts alike, whichever labels are sought.
    stake = np.divide(floor, rows.propensity, out=floor.copy(), where=reached)
    every = np.ones(len(rows), dtype=np.bool_)
    if plan.metric == "flag_rate":
        stake = every.astype(np.float64)
    nothing = ~every
    # Which rows speak for the promise and against it, if they are at or above a candidate, and if below.
    above, below = {
        "precision": ((right, wrong | unknown), (nothing, nothing)),
        "selective_risk": ((right, wrong | unknown), (nothing, nothing)),
        "recall": ((right, nothing), (nothing, right | unknown)),
        "false_positive_rate": ((nothing, wrong | unknown), (wrong, nothing)),
        "flag_rate": ((nothing, every), (every, nothing)),
    }[plan.metric]
    capital = []
    for rate in RATES:
        bet = stake * (1 - rate) / (1 - q)  # that errors come at the rate rate·q: a likelihood ratio where stake is 1
        gain, loss = np.log1p(bet * q), np.log1p(-bet * (1 - q))
        at, under = (np.bincount(cells, gain * good + loss * bad, points + 1)[:points] for good, bad in (above, below))
        capital.append(np.cumsum(at) + np.append(np.cumsum(under[::-1])[::-1][1:], 0.0))
    return np.array(capital, np.float64)
