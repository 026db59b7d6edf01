"""A challenger beside the active revision on the same rows: log loss, outcomes of policies, changed decisions.

Rows count as `service.monitoring` counts them: mature cohorts in order of prediction, a sought label weighted by
φ/π, an unsought row by 0. A row with a propensity between 0 and φ, as a review queue draws them, counts as a row of
unknown label, whether or not its label was sought: without such rows, the comparison would be about the other rows
only. A row counts as long as no label of its group was sought before. So each group shows at most one label, and the
mean of a row given all earlier rows is its own mean. Otherwise the rows of a group, which are alike, would repeat one
label as if it were many.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from candor.contract.conditions import REVIEW
from candor.contract.expressions import Expression, Line
from candor.contract.policies import TOP
from service.decisions.amounts import amounts_of, values
from service.decisions.calibrated import Calibrated
from service.decisions.gate import MIXED
from service.decisions.numbers import number, whole
from service.decisions.rows import Rows
from service.decisions.solved import SolvedPolicy
from service.monitoring.documents import VERSION, fields_of
from service.monitoring.paired import Paired

LOG_LOSS: Final = "log_loss"
_COUNTS: Final = ("rows", "labelled", "missing", "scored", "cut", "returned")
_FIELDS: Final = {"floor", "level", "through", "amount_limit", *_COUNTS, "peak", "paired", "decisions"}


@dataclass(frozen=True, slots=True, eq=False)
class Arms:
    """The same N rows as the active revision and as the challenger sees them, decided under common policies.

    Both have the same labels in the same order.
    """

    active: Calibrated
    challenger: Calibrated


class Changed(NamedTuple):
    """Rows with the same two actions: how many, how many of them have an amount, and the sum of these amounts."""

    rows: int
    priced: int
    amount: float


class Comparison:
    """Evidence on which is better, the active revision or a challenger.

    Args:
        floor: φ in (0, 1], fixed before the first row: the minimum propensity of the rows whose labels count.
        level: Of each question (log loss, and the outcome of each policy), both directions together.
        through: Start, microseconds since the epoch; later all rows before it are counted.

    Attributes:
        rows: Rows counted, with and without a sought label.
        labelled: Sought labels among them.
        missing: Rows that count with the label least favourable to the better arm: their sought label has not come, or
            they have a propensity below φ.
        scored: Rows that both arms scored, of any propensity and group.
        cut: Rows counted whose amount is above the limit.
        returned: Rows not counted because an earlier cohort had shown a label of their group.
        amount_limit: Amount to which larger ones are cut where costs depend on amounts, so that a row has a largest
            cost; 0 where no amount was known before the start, None before it is set. It never changes again.
        paired: Evidence by question: "log_loss", or the id of a policy behind "policy/".
        decisions: For each policy, rows by action of the active revision and action of the challenger.
    """

    def __init__(self, *, floor: float, level: float, through: int) -> None:
        self.floor = number(floor, "floor", above=0.0, below=1.0, closed="above")
        self.level = number(level, "level", above=0.0, below=1.0)
        self.through = whole(through, "through", least=0)
        self.rows = self.labelled = self.missing = self.scored = self.cut = self.returned = 0
        self.amount_limit: float | None = None
        self.paired: dict[str, Paired] = {}
        self.decisions: dict[str, dict[tuple[str, str], Changed]] = {}

    @property
    def decided_at(self) -> int | None:
        """Time of the prediction that decided the first question; None while all are open."""
        return min((one.decided_at for one in self.paired.values() if one.decided_at is not None), default=None)

    @property
    def evidence(self) -> float:
        """Largest current evidence of a question."""
        return max((one.evidence(arm) for one in self.paired.values() for arm in ("challenger", "active")), default=0.0)

    def update(self, arms: Arms, *, seen: Collection[int], through: int) -> NDArray[np.int64]:
        """Count the next mature cohort.

        Args:
            arms: All rows of the cohort that both scored, in order of prediction.
            seen: Groups among them with a label that was sought before.
            through: End of the cohort, exclusive.

        Returns:
            Groups whose label was sought in this cohort, to be among `seen` from now on.
        """
        rows = arms.active.rows
        self.through = through
        self.scored += len(rows)
        self._count_decisions(arms)
        which, shown, returned = counted(rows, seen)
        self.returned += returned
        arms = Arms(arms.active.take(which), arms.challenger.take(which))
        rows = arms.active.rows
        rare = rows.propensity < self.floor
        sought, known = rows.was_sought() | rare, rows.known() & ~rare
        weight = np.where(sought, self.floor / np.maximum(rows.propensity, self.floor), 0.0)
        self.rows += len(rows)
        self.labelled += int((sought & known).sum())
        self.missing += int((sought & ~known).sum())
        self.cut += int((rows.amount > (self.amount_limit or 0.0)).sum())  # not NaN
        for name, bound, losses in _questions(arms, self.amount_limit or 0.0):
            _add(self.paired.setdefault(name, Paired(bound=bound, level=self.level)), losses, rows, known, weight)
        return shown

    def _count_decisions(self, arms: Arms) -> None:
        amount = arms.active.rows.amount
        known = ~np.isnan(amount)
        for policy in arms.active.decided:
            pairs = np.stack([arms.active.actions(policy), arms.challenger.actions(policy)], axis=1)
            found = self.decisions.setdefault(policy, {})
            kinds, of = np.unique(pairs, axis=0, return_inverse=True)
            weighed = (None, known, np.where(known, amount, 0.0))
            counts = (np.bincount(of.ravel(), weights, len(kinds)).tolist() for weights in weighed)
            for (now, then), rows, priced, money in zip(kinds.tolist(), *counts, strict=True):
                was = found.get((now, then), Changed(0, 0, 0.0))
                found[now, then] = Changed(was.rows + int(rows), was.priced + int(priced), was.amount + money)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document; JSON keeps every number exactly."""
        return {
            "kind": "challenger",
            "version": VERSION,
            "floor": self.floor,
            "level": self.level,
            "through": self.through,
            "amount_limit": self.amount_limit,
            **{name: getattr(self, name) for name in _COUNTS},
            "peak": max((one.peak for one in self.paired.values()), default=0.0),
            "paired": {name: one.to_dict() for name, one in self.paired.items()},
            "decisions": {
                policy: [[now, then, *counts] for (now, then), counts in sorted(found.items())]
                for policy, found in self.decisions.items()
            },
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            InputValueError: The document is of another kind or inconsistent.
        """
        # A comparison of an earlier version goes on without costs by amount.
        fields = fields_of({"amount_limit": 0.0, "cut": 0, "returned": 0} | document, "challenger", _FIELDS)
        comparison = cls(floor=fields["floor"], level=fields["level"], through=fields["through"])
        for name in _COUNTS:
            setattr(comparison, name, whole(fields[name], name, least=0))
        limit = fields["amount_limit"]
        comparison.amount_limit = None if limit is None else number(limit, "amount_limit", above=0.0, closed="below")
        paired: Mapping[str, Any] = fields["paired"]
        comparison.paired = {name: Paired.from_dict(one, level=comparison.level) for name, one in paired.items()}
        comparison.decisions = {
            policy: {(now, then): Changed(*counts) for now, then, *counts in found}
            for policy, found in fields["decisions"].items()
        }
        return comparison


def counted(rows: Rows, seen: Collection[int]) -> tuple[NDArray[np.intp], NDArray[np.int64], int]:
    """Return which rows count, in order, the groups whose label was sought among them, and how many rows returned.

    Args:
        rows: Rows in order of prediction.
        seen: Groups whose label was sought before.
    """
    known = np.flatnonzero(rows.propensity > 0)  # not NaN
    which = known[~np.isin(rows.group[known], np.fromiter(seen, np.int64, len(seen)))]
    group, sought = rows.group[which], rows.was_sought()[which]
    groups, of = np.unique(group, return_inverse=True)
    first = np.full(len(groups), len(which))
    np.minimum.at(first, of[sought], np.flatnonzero(sought))
    kept = np.arange(len(which)) <= first[of]
    return which[kept], groups[first < len(which)], len(known) - len(which)


def prices(solved: SolvedPolicy, limit: float) -> bool:
    """Return whether a policy has costs, and an amount to cut larger ones to if they depend on amounts."""
    costs = solved.policy.costs
    return costs is not None and (not costs.by_amount or limit > 0.0)


def costs_of(
    solved: SolvedPolicy, amount: NDArray[np.float64], limit: float
) -> tuple[float, tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """Return the largest cost, and what a false positive, a false negative and a review cost, (N, 1) each.

    They are those of the policy's first band with costs; without one, a mistake costs 1 and a review nothing.

    Args:
        solved: The policy.
        amount: Amounts of N rows, NaN where unknown.
        limit: Amount that larger ones count as; see `prices`.
    """
    costs = solved.policy.costs
    if costs is None or not prices(solved, limit):
        one, nothing = np.ones((len(amount), 1)), np.zeros((len(amount), 1))
        return 1.0, (one, one, nothing)
    free = Expression((Line(0.0, 0.0, 0.0),))
    acting, passing, reviewing = (free if one is None else one for one in costs.expressions)
    at = np.clip(np.nan_to_num(amounts_of(amount, len(amount), solved.policy.amount_when_missing)), 0.0, limit)[:, None]
    bound = max(one.highest(limit) for one in (acting, passing, reviewing))
    return bound, (values(acting, at), values(passing, at), values(reviewing, at))


def _questions(arms: Arms, limit: float) -> list[tuple[str, float, tuple[NDArray[np.float64], NDArray[np.float64]]]]:
    """Return name, bound and both arms' losses under each label, shape (N, K), of every question."""
    sides = arms.active, arms.challenger
    classes = len(arms.active.names)
    losses = [-np.log((1.0 - MIXED) * side.probabilities.astype(np.float64) + MIXED / classes) for side in sides]
    bound = math.log((1.0 - MIXED + MIXED / classes) / (MIXED / classes))
    found = [(LOG_LOSS, bound, (losses[0], losses[1]))]
    for policy, solved in arms.active.policies.items():
        largest, costs = costs_of(solved, arms.active.rows.amount, limit)
        if largest == 0.0:  # no decision costs anything
            continue
        ours, theirs = (outcome(side, policy, costs) for side in sides)
        found.append((f"policy/{policy}", largest, (ours, theirs)))
    return found


def outcome(
    side: Calibrated, policy: str, costs: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return what the decisions of a policy cost under each label, shape (N, K).

    Acting costs the first on a row that is not positive, the last band the second on a positive row, and a review the
    third, whatever the label.

    Args:
        side: Decided rows.
        policy: Id of the policy.
        costs: From `costs_of`, (N, 1) each.
    """
    document = side.policies[policy].policy
    action = side.actions(policy)
    if document.positive == TOP:
        positive = np.arange(len(side.names)) == side.predicted[:, None]
    else:
        positive = np.broadcast_to(np.array(side.names) == document.positive, (len(action), len(side.names)))
    acted = (action != document.bands[-1].action)[:, None]
    missed = np.where(positive, costs[1], 0.0)
    cost = np.where(acted, np.where(positive, 0.0, costs[0]), missed)
    return np.where((action == REVIEW)[:, None], costs[2], cost)


def _add(
    paired: Paired,
    losses: tuple[NDArray[np.float64], NDArray[np.float64]],
    rows: Rows,
    known: NDArray[np.bool_],
    weight: NDArray[np.float64],
) -> None:
    active, challenger = losses
    each = np.arange(len(rows))
    label = np.where(known, rows.label, 0)
    ours, theirs = active[each, label], challenger[each, label]
    difference = theirs - ours
    low = high = difference
    if not known.all():
        possible = challenger - active
        low = np.where(known, difference, possible.min(axis=1))
        high = np.where(known, difference, possible.max(axis=1))
    labelled = np.where(known, weight, 0.0)
    paired.add(weight * low, weight * high, time=rows.predicted_at, weight=labelled, losses=(ours, theirs))
