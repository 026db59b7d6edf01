"""Estimates from logged rows of what a policy did or would have done: inverse-propensity weights, clustered intervals.

A row speaks for the identified rows if its label was sought with a known propensity above 0 and has come. Weights are
self-normalised (Hájek), so that labels missing at random leave the estimates as they are. Nothing is certified here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from candor.contract.backtests import BacktestedOutcome, OtherThreshold, WeightedEstimate
from candor.contract.conditions import REVIEW, Costs
from candor.contract.policies import TOP, Policy
from service.decisions.amounts import values
from service.decisions.mean_bounds import interval, upper_bound
from service.decisions.rows import ScoredRows
from service.times import DAY_US

LARGEST_WEIGHT: Final = 200.0
FEWEST_GROUPS: Final = 25
_POINTS: Final = 20
_MISSED: Final = 0.05

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Judged:
    """N rows that judge, as a policy scores them.

    Attributes:
        rows: The rows.
        missing: Amount of rows without one.
    """

    rows: ScoredRows
    missing: float = 0.0

    @cached_property
    def identified(self) -> Mask:
        """Whether the label of each row could come: its propensity is known and above 0."""
        found: Mask = np.nan_to_num(self.rows.propensity) > 0
        return found

    @cached_property
    def speaks(self) -> Mask:
        """Whether the label of each row was sought and has come."""
        return self.rows.known() & self.identified

    @cached_property
    def weight(self) -> Floats:
        """Capped inverse propensity of the rows that speak, 0 for the others."""
        propensity = np.where(self.speaks, self.rows.propensity, 1.0)
        return np.where(self.speaks, np.minimum(1.0 / propensity, LARGEST_WEIGHT), 0.0)

    @property
    def capped(self) -> int:
        """Number of rows whose weight is cut."""
        return int((self.speaks & (self.rows.propensity * LARGEST_WEIGHT < 1)).sum())

    @property
    def effective(self) -> float:
        """Kish effective number of rows that speak."""
        squares = float(self.weight @ self.weight)
        return float(self.weight.sum()) ** 2 / squares if squares else 0.0

    @cached_property
    def amount(self) -> Floats:
        """Amounts, `missing` where unknown."""
        return np.where(np.isnan(self.rows.amount), self.missing, self.rows.amount)

    @cached_property
    def _group(self) -> NDArray[np.intp]:
        return np.unique(self.rows.group[self.speaks], return_inverse=True)[1]

    def total(self, value: Floats, counts: Mask, most: float = math.inf) -> WeightedEstimate:
        """Return the sum of a value of at most `most` over the identified rows that count."""
        return self._mean(value, counts, np.ones(len(self.rows)), float(self.identified.sum()), most)

    def share(self, counts: Mask, of: Floats) -> WeightedEstimate:
        """Return the share of rows that count among those where `of` is 1."""
        found, others = (self._mean(of, which, of, most=1.0) for which in (counts, ~counts))
        if found.interval is None or others.interval is None:
            return found
        return WeightedEstimate(value=found.value, interval=(1.0 - others.interval[1], found.interval[1]))

    def _mean(
        self, value: Floats, counts: Mask, of: Floats, times: float = 1.0, most: float = math.inf
    ) -> WeightedEstimate:
        """Return the weighted mean of a value, 0 for rows that do not count, over the rows where `of` is 1.

        A few large values or weights can decide it, and where none of them counts, the others do not show it. So the
        upper end adds a group: the one with the largest sum if all its rows counted.

        Args:
            value: Value of each of N rows, in [0, `most`].
            counts: Which rows count, (N,).
            of: 1 for rows of the mean, 0 for others, or a probability, (N,).
            times: Number to multiply the mean with.
            most: Largest value.
        """
        weight = self.weight[self.speaks]
        columns = (weight * column[self.speaks] for column in (value * counts, of, value))
        sums, sizes, largest = (np.bincount(self._group, column).astype(np.float64) for column in columns)
        if not sizes.sum():
            return WeightedEstimate(value=None, interval=None)
        found = float(sums.sum() / sizes.sum())
        filled = sizes > 0
        if filled.sum() < FEWEST_GROUPS or not np.ptp(sums[filled] / sizes[filled]):
            return WeightedEstimate(value=found * times, interval=None)
        low, high = (float(end) for end in interval(sums[filled], sizes[filled]))
        high = max(high, float(upper_bound(sums[filled], sizes[filled], largest.max(), _MISSED / 2)))
        return WeightedEstimate(value=found * times, interval=(max(0.0, low) * times, min(most, high) * times))

    def taken(self, taken: Mask | Floats) -> dict[str, WeightedEstimate]:
        """Return what is caught, how precisely, and what that prevents, if rows are taken with some probability."""
        of, positive = np.asarray(taken, np.float64), self.rows.positive
        return {
            "caught": self.total(of, positive, most=1.0),
            "precision": self.share(positive, of),
            "prevented": self.total(of * self.amount, positive),
        }


def outcome(
    judged: Judged,
    actions: NDArray[np.object_],
    last: str | NDArray[np.object_],
    costs: Costs | None,
    seen: Floats | None = None,
) -> BacktestedOutcome:
    """Estimate what actions do.

    Args:
        judged: The rows.
        actions: Action of each row, None for a row that no policy decided.
        last: Action of the last band, which leaves rows as they are, of the policy or of each row's policy.
        costs: Costs of the policy; None without any.
        seen: Probability with which people see each row that is sent to review, from `seen_by_people`; None for 1.
    """
    known = np.array([action is not None for action in actions], dtype=bool)
    left = actions == last
    stopped = known & ~left
    taken = np.where(actions == REVIEW, stopped if seen is None else stopped * seen, stopped).astype(np.float64)
    passed = known - taken
    names, counts = np.unique(actions[known].astype(str), return_counts=True)
    return BacktestedOutcome(
        actions=dict(zip(names.tolist(), counts.tolist(), strict=True)),
        missed=judged.total(passed, judged.rows.positive, most=1.0),
        lost=judged.total(passed * judged.amount, judged.rows.positive),
        friction=_friction(judged, actions, stopped, costs, seen),
        **judged.taken(taken),
    )


def days_of(predicted_at: NDArray[np.int64]) -> float:
    """Return the days that N consecutive predictions stand for: their span, and one mean gap for the last of them.

    Predictions of one moment tell nothing about the traffic: they stand for a day, as a daily batch does.
    """
    span = float(np.ptp(predicted_at)) if len(predicted_at) else 0.0
    return span * len(predicted_at) / (len(predicted_at) - 1) / DAY_US if span else 1.0


def seen_by_people(policy: Policy, judged: Judged, actions: NDArray[np.object_], days: float) -> Floats | None:
    """Return the probability with which people see each row that is sent to review; None where they see all.

    The best rows by priority come first, as if the queue knew all rows of the span; the random part of the capacity is
    spread evenly over the others.

    Args:
        policy: The policy, with its queue.
        judged: N rows.
        actions: Action of each row.
        days: Days of the queue's capacity that these rows have.
    """
    terms = policy.review
    if terms is None or terms.max_per_day is None:
        return None
    probability = judged.rows.probability.astype(np.float64)
    priority = 1.0 - probability if policy.positive == TOP else probability
    if terms.priority == "amount":
        priority = priority * judged.amount
    reviewed = np.flatnonzero(actions == REVIEW)
    ranked = reviewed if terms.priority == "age" else reviewed[np.argsort(-priority[reviewed], kind="stable")]
    capacity = terms.max_per_day * days
    by_rank = np.clip((1 - terms.random_share) * capacity - np.arange(len(ranked)), 0.0, 1.0)
    rest = float((1 - by_rank).sum())
    drawn = min(1.0, terms.random_share * capacity / rest) if rest else 0.0
    seen = np.ones(len(actions))
    seen[ranked] = by_rank + (1 - by_rank) * drawn
    return seen


def _friction(
    judged: Judged, actions: NDArray[np.object_], stopped: Mask, costs: Costs | None, seen: Floats | None
) -> WeightedEstimate:
    if costs is None:
        return WeightedEstimate(value=None, interval=None)
    false_positive, _, review = costs.expressions
    reviewed = actions == REVIEW  # a person finds out: no false alarm, and free unless the policy says otherwise
    spent = np.where(stopped & ~reviewed, values(false_positive, judged.amount), 0.0)
    if review is not None:
        spent = np.where(reviewed, values(review, judged.amount) * (1.0 if seen is None else seen), spent)
    return judged.total(spent, reviewed | ~judged.rows.positive)


def lower_thresholds(judged: Judged) -> tuple[OtherThreshold, ...]:
    """Estimate what other thresholds would have taken, at probabilities that split the rows evenly.

    Half of the points are among the top 10 % of the rows, where thresholds of rare classes are.
    """
    probability = judged.rows.probability
    if not len(probability):
        return ()
    ranks = np.concatenate([np.linspace(0, 0.1, _POINTS // 2, endpoint=False), np.linspace(0.1, 1, _POINTS // 2)])
    points = np.unique(np.quantile(probability, 1 - ranks, method="lower"))[::-1]
    found = []
    for point in points:
        taken = probability >= point
        found.append(
            OtherThreshold(
                probability=float(point),
                rows=int(taken.sum()),
                unidentified=int((taken & ~judged.identified).sum()),
                **judged.taken(taken),
            )
        )
    return tuple(found)
