"""Bands of a policy: an action each, and the condition under which it is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from candor.contract.expressions import Expression, Line
from candor.contract.fields import Cost, Loss, Name, Part, PerDay, Probability, Promise, refusal

REVIEW: Final = "review"
MOST_BANDS: Final = 50
"""Maximum number of bands of a policy."""

Metric = Literal["precision", "selective_risk", "recall", "false_positive_rate", "flag_rate"]

Per = Literal["row", "group", "amount"]

CONDITIONS: Final[dict[str, Metric | None]] = {
    "min_probability": None,
    "cost": None,
    "max_expected_loss": None,
    "min_precision": "precision",
    "min_recall": "recall",
    "max_false_positive_rate": "false_positive_rate",
    "max_flag_rate": "flag_rate",
    "max_review_per_day": "flag_rate",
    "max_selective_risk": "selective_risk",
}
"""Every condition with the metric that it promises; None for a fixed threshold, which promises nothing."""


class Costs(Part):
    """Costs of mistakes and of a review, in any one unit: numbers, or expressions such as `4 + 0.02 * amount`."""

    false_positive: Cost = Field(description="Cost of acting on a row that is not positive.")
    false_negative: Cost = Field(description="Cost of not acting on a positive row.")
    review: Cost | None = Field(None, description="Cost of a review by a person; null without reviews.")

    @property
    def by_amount(self) -> bool:
        """Whether a cost depends on the amount of the row."""
        return not all(cost.constant for cost in (*self.expressions[:2], *filter(None, self.expressions[2:])))

    @cached_property
    def expressions(self) -> tuple[Expression, Expression, Expression | None]:
        """Costs of a false positive, of a false negative and of a review, as functions of the amount."""
        review = None if self.review is None else _expression(self.review)
        return _expression(self.false_positive), _expression(self.false_negative), review

    def threshold(self, action: str, amount: float = 0.0) -> float:
        """Return the lowest probability at which an action is the cheapest.

        Acting costs (1 − p)·false_positive, not acting p·false_negative, a review the same for every p.

        Args:
            action: "review" is compared with not acting; every other action with not acting and with a review.
            amount: Amount of the row, for costs that depend on it.

        Returns:
            The probability; above 1 where the action never pays.

        Example:
            >>> costs = Costs(false_positive=5, false_negative=100, review=1)
            >>> costs.threshold("block"), costs.threshold("review")
            (0.8, 0.01)
        """
        acting, not_acting, reviewing = self.expressions
        false_positive, false_negative = acting.at(amount), not_acting.at(amount)
        review = None if reviewing is None else reviewing.at(amount)
        if action == REVIEW and review is not None:
            return _ratio(review, false_negative)
        over_not_acting = _ratio(false_positive, false_positive + false_negative)
        return over_not_acting if review is None else max(over_not_acting, 1 - _ratio(review, false_positive))


def _expression(cost: float | str) -> Expression:
    return Expression.of(cost) if isinstance(cost, str) else Expression((Line(0.0, cost, 0.0),))


def _ratio(cost: float, of: float) -> float:
    """Return a quotient of costs; of 0 by 0, which is a tie at every probability, 0."""
    if of == 0:
        return 0.0 if cost == 0 else math.inf
    return cost / of


def _exactly_one(schema: JsonDict) -> None:
    """Say in the JSON Schema that exactly one field is present, and not null."""
    fields: Any = schema["properties"]
    for field in fields.values():
        field.update(field.pop("anyOf")[0])
        del field["default"]
    schema.update(minProperties=1, maxProperties=1)


_FIXED: Final = "Needs no labels; promises nothing."


class When(Part):
    """Condition of a band: exactly one of these fields.

    The first three compare probability and amount with fixed numbers; all others are promises, and are certified. A row
    is taken when it is at or above the threshold, by this band or by an earlier one.
    """

    model_config = ConfigDict(json_schema_extra=_exactly_one)

    min_probability: Probability | None = Field(None, description=f"Minimum calibrated probability. {_FIXED}")
    cost: Costs | None = Field(None, description=f"The action has the lowest expected cost. {_FIXED}")
    max_expected_loss: Loss | None = Field(
        None,
        description="Maximum expected loss, probability times amount, of a row that is left to the bands after this "
        f"one. {_FIXED}",
    )
    min_precision: Promise | None = Field(None, description="Minimum share of positives among the rows taken.")
    min_recall: Promise | None = Field(None, description="Minimum share of all positives that are taken.")
    max_false_positive_rate: Promise | None = Field(None, description="Maximum share of all negatives that are taken.")
    max_flag_rate: Promise | None = Field(None, description="Maximum share of all rows that are taken or explored.")
    max_review_per_day: PerDay | None = Field(
        None,
        description="Maximum number of rows a day that are taken or explored: `max_flag_rate` of this number divided "
        "by the rows of a day, which are the policy's `rows_per_day` or measured.",
    )
    max_selective_risk: Promise | None = Field(None, description="Maximum share of negatives among the rows taken.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1 or len(self.model_fields_set) != 1:
            raise refusal(
                "A band has exactly one condition.",
                "Give each condition a band of its own.",
                expected=f"one of {', '.join(CONDITIONS)}",
            )
        return self


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as a number.

    Attributes:
        name: One of `CONDITIONS`.
        value: Minimum probability in (0, 1] of a fixed threshold, the promise in (0, 1), the rows per day, or the loss;
            NaN for costs that depend on the amount.
        costs: Costs that depend on the amount; None for other conditions.
        rows_per_day: Rows of a day, of which a promise in rows per day is a share; None if unknown, or of no meaning.
    """

    name: str
    value: float
    costs: Costs | None = None
    rows_per_day: int | None = None

    @property
    def by_amount(self) -> bool:
        """Whether the threshold differs from row to row, by its amount."""
        return self.costs is not None or self.name == "max_expected_loss"

    @property
    def metric(self) -> Metric | None:
        """Metric that is promised; None for a fixed threshold."""
        return CONDITIONS[self.name]

    @property
    def at_least(self) -> bool:
        """Whether the value bounds the metric from below."""
        return not self.name.startswith("max_")

    @property
    def per_day(self) -> bool:
        """Whether the value is a number of rows per day."""
        return self.name == "max_review_per_day"

    @property
    def bound(self) -> float:
        """Bound on the metric; for rows per day, their share of the rows of a day (NaN if these are unknown)."""
        if not self.per_day:
            return self.value
        return math.nan if self.rows_per_day is None else self.value / self.rows_per_day

    @property
    def tolerance(self) -> float:
        """Largest tolerated rate of errors against the promise."""
        return 1.0 - self.bound if self.at_least else self.bound

    @property
    def looseness(self) -> tuple[str | None, float]:
        """Quantity that is bounded, and a number that is higher for a looser bound of the same quantity."""
        if self.per_day:
            return self.name, self.value
        if self.metric in (None, "recall"):
            return self.metric, self.value if self.metric else -self.value
        return "precision" if self.metric == "selective_risk" else self.metric, self.tolerance


class Band(Part):
    """An action and its condition."""

    action: Name = Field(description='Name of the action; "review" means that a person labels the row.')
    when: When | None = Field(None, description="Condition; null in the last band, which takes all remaining rows.")

    @cached_property
    def condition(self) -> Condition | None:
        """The condition as a number: of costs, the threshold of the lowest expected cost."""
        if self.when is None:
            return None
        (name,) = self.when.model_fields_set
        value = getattr(self.when, name)
        if not isinstance(value, Costs):
            return Condition(name, value)
        return Condition(name, math.nan, value) if value.by_amount else Condition(name, value.threshold(self.action))

    @model_validator(mode="after")
    def _review_pays(self) -> Self:
        costs, where = self.when and self.when.cost, ("when", "cost", "review")
        if costs and self.action == REVIEW and costs.review is None:
            found = sorted(costs.model_fields_set)
            raise refusal("Missing field 'review'.", "Add 'review'.", *where, expected="review", found=found)
        if costs and not costs.by_amount and costs.threshold(self.action) > 1:
            raise refusal(
                "A review that costs more than the mistake it prevents never pays: no row would reach this band.",
                "Remove the band, or correct the costs.",
                *where,
                expected=f"at most {costs.false_negative}",
                found=costs.review,
            )
        return self


def check_reachable(bands: tuple[Band, ...]) -> tuple[Band, ...]:
    """Return the bands of a policy; refuse those that no row could reach."""
    loosest: dict[str | None, Condition] = {}
    amounts = reviewed = False
    seen: set[str] = set()
    for i, band in enumerate(bands):
        last, condition = band is bands[-1], band.condition
        if band.action in seen:
            raise refusal(
                f"The action {band.action!r} appears twice.",
                "Give this band another action, or merge the two.",
                *(i, "action"),
                expected="each action in one band",
                found=band.action,
            )
        seen.add(band.action)
        if last != (condition is None):
            raise refusal(
                "The last band must take all remaining rows." if last else "No row can reach the bands after this one.",
                'End with a band without a condition, such as {"action": "review"}, and give every other a "when".',
                *((i, "when") if last else (i,)),
                expected="no condition" if last else "a condition",
                found=condition and condition.name,
            )
        if condition is None:
            continue
        if condition.by_amount:
            if reviewed and condition.costs is not None:
                raise refusal(
                    "An earlier band sends rows to review without a look at this band's cost.",
                    "Put the review last of the bands with costs.",
                    *(i, "when", condition.name),
                    expected="the review after this band",
                    found=band.action,
                )
            amounts, reviewed = True, reviewed or (band.action == REVIEW and condition.costs is not None)
            continue
        if amounts and condition.metric is not None:
            raise refusal(
                f"{condition.name} is about all rows at or above its threshold; an earlier band takes rows by amount.",
                "Put the bands with promises first.",
                *(i, "when", condition.name),
                expected="promises before conditions on amounts",
                found=condition.name,
            )
        quantity, looseness = condition.looseness
        earlier = loosest.get(quantity)
        if earlier is not None and looseness <= earlier.looseness[1]:
            raise refusal(
                f"{condition.name} of {condition.value:g} leaves this band no rows: an earlier band takes them.",
                "Order the bands from the strictest condition to the loosest.",
                *(i, "when", condition.name),
                expected=f"a looser condition than {earlier.name} of {earlier.value:g}",
                found=condition.value,
            )
        loosest[quantity] = condition
    return bands
