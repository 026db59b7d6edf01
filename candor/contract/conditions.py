"""Bands of a policy: an action each, and the condition under which it is taken."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from candor.contract.fields import Cost, Name, Part, Probability, Promise, refusal

REVIEW: Final = "review"

Metric = Literal["precision", "selective_risk", "recall", "false_positive_rate", "flag_rate"]

CONDITIONS: Final[dict[str, Metric | None]] = {
    "min_probability": None,
    "cost": None,
    "min_precision": "precision",
    "min_recall": "recall",
    "max_false_positive_rate": "false_positive_rate",
    "max_flag_rate": "flag_rate",
    "max_selective_risk": "selective_risk",
}
"""Every condition with the metric that it promises; None for a fixed threshold, which promises nothing."""


class Costs(Part):
    """Costs of mistakes and of a review, in any one unit."""

    false_positive: Cost = Field(description="Cost of acting on a row that is not positive.")
    false_negative: Cost = Field(description="Cost of not acting on a positive row.")
    review: Cost | None = Field(None, description="Cost of a review by a person; null without reviews.")

    def threshold(self, action: str) -> float:
        """Return the lowest probability at which an action is the cheapest.

        Acting costs (1 − p)·false_positive, not acting p·false_negative, a review the same for every p.

        Args:
            action: "review" is compared with not acting; every other action with not acting and with a review.

        Returns:
            The probability; above 1 where a review never pays.

        Example:
            >>> costs = Costs(false_positive=5, false_negative=100, review=1)
            >>> costs.threshold("block"), costs.threshold("review")
            (0.8, 0.01)
        """
        if action == REVIEW and self.review is not None:
            return self.review / self.false_negative
        over_not_acting = self.false_positive / (self.false_positive + self.false_negative)
        return over_not_acting if self.review is None else max(over_not_acting, 1 - self.review / self.false_positive)


def _exactly_one(schema: JsonDict) -> None:
    """Say in the JSON Schema that exactly one field is present, and not null."""
    fields: Any = schema["properties"]
    for field in fields.values():
        field.update(field.pop("anyOf")[0])
        del field["default"]
    schema.update(minProperties=1, maxProperties=1)


_FIXED: Final = "A fixed threshold; promises nothing."


class When(Part):
    """Condition of a band: exactly one of these fields. All but the first two are promises, and are certified.

    A row is taken when it is at or above the threshold, by this band or by an earlier one.
    """

    model_config = ConfigDict(json_schema_extra=_exactly_one)

    min_probability: Probability | None = Field(None, description=f"Minimum calibrated probability. {_FIXED}")
    cost: Costs | None = Field(None, description=f"The action has the lowest expected cost. {_FIXED}")
    min_precision: Promise | None = Field(None, description="Minimum share of positives among the rows taken.")
    min_recall: Promise | None = Field(None, description="Minimum share of all positives that are taken.")
    max_false_positive_rate: Promise | None = Field(None, description="Maximum share of all negatives that are taken.")
    max_flag_rate: Promise | None = Field(None, description="Maximum share of all rows that are taken or explored.")
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
        value: Minimum probability in (0, 1] of a fixed threshold, else the promise in (0, 1).
    """

    name: str
    value: float

    @property
    def metric(self) -> Metric | None:
        """Metric that is promised; None for a fixed threshold."""
        return CONDITIONS[self.name]

    @property
    def at_least(self) -> bool:
        """Whether the value bounds the metric from below."""
        return not self.name.startswith("max_")

    @property
    def tolerance(self) -> float:
        """Largest tolerated rate of errors against the promise."""
        return 1.0 - self.value if self.at_least else self.value

    @property
    def looseness(self) -> tuple[str | None, float]:
        """Quantity that is bounded, and a number that is higher for a looser bound of the same quantity."""
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
        return Condition(name, value.threshold(self.action) if isinstance(value, Costs) else value)

    @model_validator(mode="after")
    def _review_pays(self) -> Self:
        costs, where = self.when and self.when.cost, ("when", "cost", "review")
        if costs and self.action == REVIEW and costs.review is None:
            found = sorted(costs.model_fields_set)
            raise refusal("Missing field 'review'.", "Add 'review'.", *where, expected="review", found=found)
        if costs and costs.threshold(self.action) > 1:
            raise refusal(
                "A review that costs more than the mistake it prevents never pays: no row would reach this band.",
                "Remove the band, or correct the costs.",
                *where,
                expected=f"at most {costs.false_negative:g}",
                found=costs.review,
            )
        return self


def check_reachable(bands: tuple[Band, ...]) -> tuple[Band, ...]:
    """Return the bands of a policy; refuse those that no row could reach."""
    loosest: dict[str | None, Condition] = {}
    for i, band in enumerate(bands):
        last, condition = band is bands[-1], band.condition
        if band.action in {earlier.action for earlier in bands[:i]}:
            raise refusal(
                f"The action {band.action!r} appears twice.",
                "Give this band another action, or merge the two.",
                *(i, "action"),
                expected="each action in one band",
                found=band.action,
            )
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
