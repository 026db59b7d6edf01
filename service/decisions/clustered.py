"""Promises about each row, or about each unit of the amounts, where rows come in groups.

Rows of a group are alike, so groups are what is independent. `Grouped` sums the denominator and the errors of each
group at each candidate; `Clustered` tests promises on these sums, with what fit rows say about the size of groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from candor.contract.conditions import Metric
from candor.contract.policies import Policy
from service.decisions.betting import Block, hedged, mixed
from service.decisions.binomial import labels_needed, p_value
from service.decisions.claims import Outcome
from service.decisions.grid import Grid
from service.decisions.rows import ScoredRows
from service.decisions.sequence import BAND_POINTS, band

EXCESS: Final = 1 / 40
"""Share of fit rows that may lie beyond the limit of their groups, as a part of the tolerated rate of errors."""

CHARGED: Final = 2 * EXCESS
"""The same share in the population and the certify rows, all of them errors: what the tolerated rate is lowered by."""

_STEP: Final = 0.75  # between two limits that are tried


def groups_repeat(*parts: ScoredRows) -> bool:
    """Return whether a part has two rows of one group."""
    for rows in parts:
        ordered = np.sort(rows.group)
        if (ordered[1:] == ordered[:-1]).any():
            return True
    return False


class Grouped:
    """Rows beside a list of candidates, thinned to an even sample as in `counting`, and summed by group.

    Args:
        rows: N rows.
        cells: Index of the strictest candidate that takes each row, shape (N,).
        floor: Rate at which rows at or above each candidate enter its sample, non-increasing, shape (G,), G ≥ 1.
        seed: Seed of the draws and of the order of groups; fixed before any label is seen.
        weight: What a row counts, at least 0, shape (N,); None for 1.

    Attributes:
        size: Number of groups.
    """

    def __init__(
        self,
        rows: ScoredRows,
        cells: NDArray[np.intp],
        floor: NDArray[np.float64],
        seed: int,
        weight: NDArray[np.float64] | None = None,
    ) -> None:
        found, group = np.unique(rows.group, return_inverse=True)
        self.size = len(found)
        group = np.random.default_rng((seed, 2)).permutation(self.size)[group]
        order = np.argsort(group, kind="stable")
        rows, self._cells, self._group = rows.take(order), cells[order], group[order]
        self._weight = np.ones(len(rows)) if weight is None else weight[order]
        self._draw = np.random.default_rng((seed, 3)).random(self.size)
        self._points = len(floor)
        # Where unlabelled rows are given too, the flag rate is about all rows, whatever their propensity is.
        self._traffic = rows.labelled is not None
        propensity = rows.propensity
        sought = rows.was_sought() & (propensity > 0)
        draw = np.random.default_rng((seed, 1)).random(len(rows))
        uniform = np.where(sought, draw * propensity, propensity + draw * (1.0 - propensity))
        # A row of unknown propensity (NaN) is in no sample.
        self._last = self._points - np.searchsorted(floor[::-1], uniform, side="right")
        self._even = uniform < floor[-1]
        self._unknown = ~(rows.known() & (propensity > 0))
        self._right, self._wrong = rows.positive & ~self._unknown, ~rows.positive & ~self._unknown

    def total(self, metric: Metric, at: int) -> tuple[int, int, int]:
        """Return the rows in a metric's denominator at one candidate, errors among them, and rows without a label."""
        start, end, wrong, right = self._spans(metric)
        inside = (start <= at) & (at < end) & (self._weight > 0)
        errors = inside & (wrong <= at) & (at < right)
        return int(inside.sum()), int(errors.sum()), int((inside & self._unknown).sum())

    def blocks(self, metric: Metric, candidates: NDArray[np.intp], count: int) -> Iterator[Block]:
        """Yield denominators and errors of the groups in random order, at some candidates, in `count` blocks."""
        start, end, wrong, right = self._spans(metric)
        edges = np.unique(np.linspace(0, self.size, count + 1).astype(np.intp))
        ends = np.searchsorted(self._group, edges)
        width = self._points + 1
        nothing = 1e-9 * self._weight.max(initial=0.0)  # sums of amounts are rounded
        for first, last, low, high in zip(edges[:-1], edges[1:], ends[:-1], ends[1:], strict=True):
            base, weight = (self._group[low:high] - first) * width, self._weight[low:high]
            sums = []
            for a, b in ((start[low:high], end[low:high]), (wrong[low:high], right[low:high])):
                counted = np.where(a < b, weight, 0.0)
                size = int(last - first) * width
                steps = np.bincount(base + a, counted, size) - np.bincount(base + b, counted, size)
                found = np.cumsum(steps.reshape(-1, width), axis=1)[:, candidates]
                sums.append(np.where(found > nothing, found, 0.0))
            yield sums[0], np.minimum(sums[1], sums[0])

    def drawn_rows(self, metric: Metric, candidates: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the groups with a denominator at each candidate, and those of which a drawn row is an error."""
        n, errors, first = np.zeros(len(candidates), np.int64), np.zeros(len(candidates), np.int64), 0
        for of, wrong in self.blocks(metric, candidates, 50):
            draw = self._draw[first : first + len(of), None]
            n += (of > 0).sum(axis=0)
            errors += (draw * of < wrong).sum(axis=0)
            first += len(of)
        return n, errors

    def _spans(self, metric: Metric) -> tuple[NDArray[np.intp], ...]:
        """Return from and to which candidate each row is in the denominator, and from and to which it is an error."""
        cells, points = self._cells, self._points
        none, all_ = np.zeros_like(cells), np.full_like(cells, points)
        if metric in ("precision", "selective_risk"):
            return cells, self._last, cells, np.where(self._right, none, self._last)
        if metric == "recall":
            found, lost = self._even & self._right, self._even & self._unknown
            return none, np.where(found, all_, np.where(lost, cells, none)), none, np.where(found | lost, cells, none)
        if metric == "false_positive_rate":
            counted, unknown = self._even & self._wrong, self._even & self._unknown
            end = np.where(counted | unknown, all_, none)
            return np.where(unknown, cells, none), end, cells, end
        end = all_ if self._traffic else np.where(self._even, all_, none)
        return none, end, cells, end


@dataclass(frozen=True, slots=True)
class _Groups:
    """What fit rows say of a metric's groups at each of C candidates; arrays of shape (C,).

    Attributes:
        limit: Largest denominator that a group counts with.
        tolerance: Tolerated rate of errors, lowered where fit or certify rows are beyond the limit of their groups.
        beyond: Share of the certify rows beyond it.
        size: Mean denominator of a group that has one.
        alike: Number of errors that come together.
        rate: Rate of errors.
        share: Share of the groups that have a denominator.
    """

    limit: NDArray[np.float64]
    tolerance: NDArray[np.float64]
    beyond: NDArray[np.float64]
    size: NDArray[np.float64]
    alike: NDArray[np.float64]
    rate: NDArray[np.float64]
    share: NDArray[np.float64]


class Clustered:
    """Tests of promises about rows or amounts, on rows whose groups repeat.

    Args:
        policy: The policy.
        grid: Candidates, at least one.
        fit: Rows that say how large groups are and how often errors come together.
        certify: Rows that test.
        seed: Seed of the draws; fixed before any label is seen.
    """

    def __init__(self, policy: Policy, grid: Grid, fit: ScoredRows, certify: ScoredRows, seed: int) -> None:
        if not (fit.whole & fit.drawn).all():  # of other groups, only labelled rows are here
            fit = fit.take(fit.whole & fit.drawn)
        self._rows = policy.certify.unit == "row"
        self._points = len(grid.keys)
        weights = [None if self._rows else amounts_of(policy, part) for part in (fit, certify)]
        self._fit = Grouped(fit, grid.cells(fit), grid.floor, seed, weights[0])
        self._certify = Grouped(certify, grid.cells(certify), grid.floor, seed, weights[1])

    def walk(self, metric: Metric, order: NDArray[np.intp], tolerance: float, level: float) -> tuple[int, int]:
        """Test candidates in order from the start that fit rows choose, until the first failure.

        Args:
            metric: The metric.
            order: Candidates from the safest to the boldest.
            tolerance: Largest rate of errors that keeps the promise.
            level: Level of the sequence.

        Returns:
            The start and the last success, −1 without one, as places in `order`.
        """
        groups = self._groups(metric, order, tolerance)
        start = 0
        if metric in ("precision", "selective_risk"):
            start = int(self._outlook(groups, level, self._certify.size).argmax())
        shown = self.test(metric, order[start:], tolerance, level)
        steps = len(shown) if shown.all() else int(shown.argmin())
        return start, start + steps - 1 if steps else -1

    def test(self, metric: Metric, candidates: NDArray[np.intp], tolerance: float, level: float) -> NDArray[np.bool_]:
        """Return at which candidates a promise that was fixed before these rows were seen is shown, each at `level`."""
        groups = self._groups(metric, candidates, tolerance)
        n, errors = self._certify.drawn_rows(metric, candidates)
        shown = self._one_row(groups) & (p_value(errors, n, groups.tolerance) <= level)
        more = np.flatnonzero(~self._one_row(groups))
        if len(more):
            shown[more] = hedged(
                self._certify.blocks(metric, candidates[more], 250),
                n[more],
                groups.tolerance[more],
                groups.limit[more],
                groups.size[more],
                groups.alike[more],
                level,
            )
        return shown

    def chances(
        self, metric: Metric, candidates: Sequence[int], tolerance: float
    ) -> Callable[[float, float, float], float]:
        """Return what estimates the chance that certify rows show a promise; no label of theirs is read.

        Args:
            metric: The metric.
            candidates: Candidates to start from.
            tolerance: Largest rate of errors that keeps the promise.

        Returns:
            A function of the level of the test, the number of groups that certify, and the number of fit groups.
        """
        groups = self._groups(metric, np.asarray(candidates, np.intp), tolerance)

        def chance(level: float, certify: float, fit: float) -> float:
            outlook = self._outlook(groups, level, certify)
            at = outlook.argmax()
            # What lies beyond the limit is judged where the walk will probably end: that is what is certified.
            unlikely = np.append(outlook[at + 1 :] <= 0, True)
            if groups.beyond[at + unlikely.argmax()] > CHARGED * tolerance:  # the certificate is refused
                return 0.0
            return float(scipy.special.ndtr(self._outlook(groups, level, certify, fit)[at]))

        return chance

    def band(self, metric: Metric, order: NDArray[np.intp], tolerance: float, share: float) -> tuple[int, int]:
        """Test candidates at once, for a promise that may have been chosen with the rows in view.

        Returns:
            The place in `order` of the closest candidate, and that of the boldest success, −1 without one.
        """
        tested = band(len(order))
        groups = self._groups(metric, order[tested], tolerance, excess=0.0)
        n, errors = self._certify.drawn_rows(metric, order[tested])
        bets = mixed(self._certify.blocks(metric, order[tested], 50), groups.tolerance, groups.limit)
        with np.errstate(divide="ignore"):
            drawn = -np.log(p_value(errors, n, groups.tolerance))
        evidence = np.where(self._one_row(groups), drawn, bets)
        wanted = np.log(BAND_POINTS / share) if share > 0 else np.inf
        shown = np.append(-1, tested[evidence >= wanted])
        return int(tested[evidence.argmax()]), int(shown[-1])

    def outcome(
        self,
        metric: Metric,
        grid: Grid,
        at: int,
        tolerance: float,
        level: float,
        share: float,
        *,
        succeeded: bool,
        alone: bool,
    ) -> Outcome:
        """Return the outcome at a candidate.

        Args:
            metric: The metric.
            grid: The candidates.
            at: Index of the candidate.
            tolerance: Largest rate of errors that keeps the promise.
            level: Level of the test there.
            share: Part of delta that the promise has.
            succeeded: Whether the promise is shown.
            alone: Whether it was tested by `walk` or `test`, not by `band`.
        """
        n, errors, unlabelled = self._certify.total(metric, at)
        found = self._groups(metric, np.array([at]), tolerance, excess=EXCESS if alone else 0.0)
        limit, sums, groups = float(found.limit[0]), 0.0, 0
        for of, _ in self._certify.blocks(metric, np.array([at]), 50):
            sums, groups = sums + float(of.sum()), groups + int((of > 0).sum())
        # Groups of the largest size that is allowed for are what is independent.
        rows = limit * n / sums if sums else limit if self._rows else 1.0
        rows = max(rows, 1.0)
        needed = int(np.ceil(rows * labels_needed(int(n / rows), int(np.ceil(errors / rows)), tolerance, level)))
        return Outcome(
            share,
            grid.threshold(at),
            succeeded,
            n,
            errors,
            unlabelled,
            None if succeeded else max(needed, 1),
            groups=groups,
            limit=limit,
            beyond=float(found.beyond[0]),
            allowed=CHARGED * tolerance,
        )

    def _one_row(self, groups: _Groups) -> NDArray[np.bool_]:
        """Return where each group counts with one row, so the exact binomial test applies."""
        return np.asarray(self._rows & (groups.limit <= 1))

    def _groups(
        self, metric: Metric, candidates: NDArray[np.intp], tolerance: float, *, excess: float = EXCESS
    ) -> _Groups:
        def blocks() -> Iterator[Block]:
            return self._fit.blocks(metric, candidates, 50)

        none = np.zeros(len(candidates))
        top, total = none, none
        for of, _ in blocks():
            top, total = np.maximum(top, of.max(axis=0)), total + of.sum(axis=0)
        largest = float(top.max(initial=0.0)) or 1.0
        top = np.where(top > 0, top, largest)
        limit, over = top, np.zeros(len(candidates), np.bool_)
        if excess:
            levels = largest * _STEP ** np.arange(35)
            levels = np.unique(np.ceil(levels)) if self._rows else levels[::-1]
            beyond = np.zeros((len(levels), len(candidates)))
            for of, _ in blocks():
                for at, level in enumerate(levels):
                    beyond[at] += (of - level).clip(0.0).sum(axis=0)
            enough = beyond <= excess * tolerance * total
            smallest = levels[enough.argmax(axis=0)]
            over = smallest < top
            limit = np.where(over, smallest, top)
        size, squares, errors, pairs, wrong, groups = (np.zeros(len(candidates)) for _ in range(6))
        for block in blocks():
            scale = np.minimum(1.0, limit / np.maximum(block[0], limit))
            of, error = block[0] * scale, block[1] * scale
            size, squares, groups = size + of.sum(axis=0), squares + (of**2).sum(axis=0), groups + (of > 0).sum(axis=0)
            errors, pairs = errors + error.sum(axis=0), pairs + (of * error).sum(axis=0)
            wrong = wrong + (error**2).sum(axis=0)
        mean = np.divide(size, groups, out=limit.copy(), where=groups > 0)
        rate = (errors + 0.5 * mean) / (size + mean)
        together = np.divide(squares, size, out=limit.copy(), where=size > 0)
        spread = wrong - 2 * rate * pairs + rate**2 * squares
        alike = (spread + together * mean) / (rate * (1 - rate) * size + mean)
        outside, all_ = np.zeros(len(candidates)), np.zeros(len(candidates))
        for of, _ in self._certify.blocks(metric, candidates, 50):
            outside, all_ = outside + (of - limit).clip(0.0).sum(axis=0), all_ + of.sum(axis=0)
        outside = np.divide(outside, all_, out=np.zeros_like(outside), where=all_ > 0)
        over |= outside > 0
        charged = CHARGED * tolerance
        return _Groups(
            limit=limit,
            tolerance=np.where(over, (tolerance - charged) / (1 - charged), tolerance),
            beyond=outside,
            size=mean,
            alike=np.clip(alike, 1.0 if self._rows else 1e-3 * together, together),
            rate=rate,
            share=groups / max(self._fit.size, 1),
        )

    def _outlook(self, groups: _Groups, level: float, certify: float, fit: float = math.inf) -> NDArray[np.float64]:
        """Return how likely each candidate is to be certified, as a normal quantile, judged from fit rows only.

        Args:
            groups: What fit rows say.
            level: Level of the test.
            certify: Number of groups that certify.
            fit: Number of fit groups whose rate of errors is an estimate; infinite to take the rate as it is.
        """
        q, n = groups.tolerance, np.maximum(groups.share * certify, 1e-9)
        goal = -np.log(max(level, 1e-300))
        margin = n * groups.size * (q - groups.rate)
        luck = -scipy.special.ndtri(max(level, 1e-300)) * np.sqrt(n * q * (1 - q) * groups.size * groups.alike)
        needed = np.hypot(luck, (1 - q) * groups.limit * goal)
        deviation = np.sqrt(n * groups.rate * (1 - groups.rate) * groups.size * groups.alike * (1 + certify / fit))
        return np.asarray((margin - needed) / deviation)


def amounts_of(policy: Policy, rows: ScoredRows) -> NDArray[np.float64]:
    """Return what each row counts in a promise about amounts, shape (N,); 0 without an amount."""
    missing = 0.0 if policy.amount_when_missing is None else policy.amount_when_missing
    return np.asarray(np.where(np.isnan(rows.amount), missing, rows.amount), np.float64)


def clustered(policy: Policy, grid: Grid, fit: ScoredRows, certify: ScoredRows, seed: int) -> Clustered | None:
    """Return the tests of a policy whose promises are about rows or amounts; None if each group is one unit."""
    unit = policy.certify.unit
    if not len(grid.keys) or unit == "group" or (unit == "row" and not groups_repeat(fit, certify)):
        return None
    return Clustered(policy, grid, fit, certify, seed)
