"""Which logged predictions become cases: the rows of the review queue as the log writes them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, select, update

from candor.contract.policies import Review
from service.decisions.capacity import HOURS_OF_DAY, Hour, bins_of, plan
from service.state.insertion import insert_for
from service.state.tables import review_hours
from service.times import duration_us

_HOUR_US: Final = 3_600_000_000
_KEPT_HOURS: Final = 8 * HOURS_OF_DAY  # a weekend with holidays has a day before it
_NAMES: Final = ("model", "policy", "priority")
COLUMNS: Final = (
    *("id", "model", "policy", "selected", "created_at", "due_at", "cluster", "place", "probability", "amount"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Reviewed:
    """What the review queue of a policy needs to know of N rows.

    Attributes:
        policy: Id of the policy.
        terms: Its `review`.
        probability: Float (N,): probability of the positive class; for "top", of a wrong answer.
        amounts: Amounts at stake, N of them or None; None without any.
        selected: Why each label is sought, N of "all", "ranked", "random" and "explored", None where it is not; None
            before it is known.
        arising: Actions whose labels arise by themselves: reviewed or not, they are sought.
    """

    policy: str
    terms: Review
    probability: NDArray[np.floating[Any]]
    amounts: Sequence[float | None] | None = None
    selected: Sequence[str | None] | None = None
    arising: frozenset[str] = frozenset()

    @property
    def priority(self) -> NDArray[np.float64]:
        """Priority of each row, not negative; equal if the age alone decides."""
        if self.terms.priority == "age":
            return np.zeros(len(self.probability))
        if self.terms.priority == "amount":
            amounts = np.zeros(len(self.probability))
            if self.amounts is not None:
                amounts += [amount or 0.0 for amount in self.amounts]
            return amounts * self.probability
        certain = np.clip(self.probability.astype(np.float64), 0.0, 1.0 - 2.0**-53)
        odds: NDArray[np.float64] = certain / (1.0 - certain)
        return odds


def case_rows(
    model: str,
    reviewed: Reviewed,
    ids: Sequence[str],
    created_at: int,
    groups: Sequence[int],
    rows: Sequence[int],
) -> list[tuple[Any, ...]]:
    """Return the cases among some rows of a batch, as values of `COLUMNS`."""
    due_at = created_at + duration_us(reviewed.terms.due)
    places = (-reviewed.priority).tolist()
    probabilities = reviewed.probability.tolist()
    amounts, selected = reviewed.amounts, reviewed.selected or [None] * len(ids)
    return [
        (
            *(ids[row], model, reviewed.policy, why, created_at, due_at, groups[row]),
            *(places[row], probabilities[row], None if amounts is None else amounts[row]),
        )
        for row in rows
        if (why := selected[row]) is not None
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Undecided:
    """Rows that a policy with a daily capacity sends to review.

    Attributes:
        model: The model.
        reviewed: The queue.
        rows: Indices of the rows.
        at: When they were predicted, in microseconds since the epoch, UTC.
    """

    model: str
    reviewed: Reviewed
    rows: Sequence[int]
    at: int

    @property
    def hour(self) -> tuple[str, str, str, int]:
        """Key of the hour that they belong to."""
        return self.model, self.reviewed.policy, self.reviewed.terms.priority, self.at // _HOUR_US

    @property
    def random_slots(self) -> float:
        """Rows of a day to draw at random."""
        return (self.reviewed.terms.max_per_day or 0) * self.reviewed.terms.random_share

    @property
    def ranked_slots(self) -> int:
        """Rows of a day to select by rank."""
        return (self.reviewed.terms.max_per_day or 0) - round(self.random_slots)


def select_reviews(
    connection: Connection, groups: Sequence[Undecided], draw: random.Random
) -> list[tuple[list[float], list[str | None]]]:
    """Count rows and return, for each group, the propensities and the reasons of its rows, see `Hour.select`.

    Other writers of the same policies wait until the transaction ends.

    Args:
        connection: Inside a write transaction.
        groups: Rows to select from.
        draw: Source of the draws.
    """
    hours: dict[tuple[str, str, str, int], Hour] = {}
    spent: Counter[tuple[str, str, str, int]] = Counter()
    for group in sorted(groups, key=lambda group: group.hour):  # in one order, so that no two writers wait in a circle
        if group.hour not in hours:
            hours[group.hour], spent[_day(group)] = _hour(connection, group)
    found = []
    for group in groups:
        bins = bins_of(group.reviewed.priority[list(group.rows)])
        room = group.ranked_slots - spent[_day(group)]
        new = hours[group.hour].select(bins, random_slots=group.random_slots, draw=draw, room=room)
        spent[_day(group)] += new[1].count("ranked")
        found.append(new)
    for (*key, number), hour in hours.items():
        changed = {"rows": hour.rows, "ranked": hour.ranked, "counts": hour.counts}
        connection.execute(update(review_hours).where(*_where(key), review_hours.c.hour == number).values(changed))
    return found


def _day(group: Undecided) -> tuple[str, str, str, int]:
    model, policy, priority, number = group.hour
    return model, policy, priority, number // HOURS_OF_DAY


def _hour(connection: Connection, group: Undecided) -> tuple[Hour, int]:
    """Return the plan of an hour, made on its first use, and the ranked rows of its day so far; the day is locked."""
    *key, number = group.hour
    start = number // HOURS_OF_DAY * HOURS_OF_DAY
    hour = review_hours.c.hour  # locked in this order, so that no two writers wait in a circle
    of_day = (hour >= start, hour < start + HOURS_OF_DAY)
    day = select(*_COLUMNS_OF_HOUR).where(*_where(key), *of_day).order_by(hour).with_for_update()
    rows = connection.execute(day).all()
    if all(row.hour != number for row in rows):
        known = select(*_COLUMNS_OF_HOUR).where(
            *_where(key), review_hours.c.hour >= number - _KEPT_HOURS, review_hours.c.hour < number
        )
        earlier = [_read(one) for one in connection.execute(known)]
        new = dict(zip(_NAMES, key, strict=True)) | asdict(plan(earlier, number, ranked_slots=group.ranked_slots))
        connection.execute(insert_for(connection, review_hours).values(new).on_conflict_do_nothing())
        connection.execute(delete(review_hours).where(*_where(key), review_hours.c.hour < number - _KEPT_HOURS))
        rows = connection.execute(day).all()  # perhaps another replica's
    return _read(next(row for row in rows if row.hour == number)), sum(row.ranked for row in rows)


_COLUMNS_OF_HOUR = tuple(review_hours.c[one.name] for one in fields(Hour))


def _where(key: Sequence[Any]) -> list[Any]:
    return [review_hours.c[name] == value for name, value in zip(_NAMES, key, strict=True)]


def _read(row: Any) -> Hour:
    values = row._asdict()
    return Hour(**values | {"counts": {int(bin_): count for bin_, count in values["counts"].items()}})
