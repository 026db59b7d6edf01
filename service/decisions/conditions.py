"""What a band may ask of the rows it takes: every condition, what it promises and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from service.decisions import documents
from service.errors import PolicyError

REVIEW: Final = "review"

Metric = Literal["precision", "selective_risk", "recall", "false_positive_rate", "flag_rate"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of condition.

    Attributes:
        metric: What it promises; None for a fixed threshold, which promises nothing.
        direction: Whether the promise is a lower or an upper bound of the metric.
        family: Conditions of one family are about the same quantity, so that a later band's must be the looser one.
    """

    metric: Metric | None
    direction: Literal["at_least", "at_most"]
    family: str


CONDITIONS: Final[dict[str, Kind]] = {
    "min_probability": Kind(None, "at_least", "probability"),
    "cost": Kind(None, "at_least", "probability"),
    "min_precision": Kind("precision", "at_least", "precision"),
    "min_recall": Kind("recall", "at_least", "recall"),
    "max_false_positive_rate": Kind("false_positive_rate", "at_most", "false-positive rate"),
    "max_flag_rate": Kind("flag_rate", "at_most", "flag rate"),
    "max_selective_risk": Kind("selective_risk", "at_most", "precision"),
}
"""Every condition that a band may have."""

_PROMISE_OF_ONE: Final = "No finite number of labels can certify a promise of exactly 1; 0.99 is a strong one."
_PROMISE_OF_ZERO: Final = "No finite number of labels can certify that something never happens; 0.01 is a strong limit."


@dataclass(frozen=True, slots=True)
class Costs:
    """What mistakes and reviews cost, in any one unit.

    Attributes:
        false_positive: Acting on a row that is not positive.
        false_negative: Letting a positive row go.
        review: Having a person look at a row; None where nobody does.
    """

    false_positive: float
    false_negative: float
    review: float | None = None

    def threshold(self, action: str) -> float:
        """Return the lowest probability at which an action is the cheapest.

        Acting costs (1 − p)·false_positive, letting go p·false_negative, a review the same for every p.

        Args:
            action: "review" is chosen over letting go; every other action over letting go and over review.

        Returns:
            The probability; above 1 where a review never pays.

        Example:
            >>> costs = Costs(false_positive=5, false_negative=100, review=1)
            >>> costs.threshold("block"), costs.threshold("review")
            (0.8, 0.01)
        """
        if action == REVIEW and self.review is not None:
            return self.review / self.false_negative
        over_letting_go = self.false_positive / (self.false_positive + self.false_negative)
        return over_letting_go if self.review is None else max(over_letting_go, 1 - self.review / self.false_positive)

    def to_dict(self) -> dict[str, float]:
        """Return a JSON-able document."""
        review = {} if self.review is None else {"review": self.review}
        return {"false_positive": self.false_positive, "false_negative": self.false_negative, **review}


@dataclass(frozen=True, slots=True)
class Condition:
    """What a row must meet to fall into a band.

    Attributes:
        name: One of `CONDITIONS`.
        value: Lowest probability in (0, 1] where the threshold is fixed, else the promise, in (0, 1).
        costs: Where a fixed threshold comes from costs.
    """

    name: str
    value: float
    costs: Costs | None = None

    @property
    def kind(self) -> Kind:
        """What kind of condition it is."""
        return CONDITIONS[self.name]

    @property
    def metric(self) -> Metric | None:
        """What is promised; None for a fixed threshold."""
        return self.kind.metric

    @property
    def certified(self) -> bool:
        """Whether the threshold is solved from labelled rows and carries a certificate."""
        return self.kind.metric is not None

    @property
    def tolerance(self) -> float:
        """Largest tolerated rate of what counts against the promise."""
        return 1.0 - self.value if self.kind.direction == "at_least" else self.value

    @property
    def looseness(self) -> float:
        """A number that rises with the rows a condition leaves a band, among conditions of one family."""
        if self.kind.family == "probability":
            return -self.value
        return self.value if self.metric == "recall" else self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `read_condition` reads."""
        return {self.name: self.value if self.costs is None else self.costs.to_dict()}


def read_condition(value: Any, where: str, action: str) -> Condition:
    """Read a band's `when`.

    Args:
        value: An object with one condition.
        where: JSON pointer to it.
        action: The band's action.

    Raises:
        PolicyError: It cannot be used.
    """
    when = documents.fields_of(value, where, set(CONDITIONS), kind="condition")
    if len(when) != 1:
        raise PolicyError(
            "A band has exactly one condition.",
            where=where,
            found=sorted(when),
            expected=f"one of {', '.join(CONDITIONS)}",
            remedy="Give each condition a band of its own.",
        )
    ((name, content),) = when.items()
    where = f"{where}/{name}"
    if name == "cost":
        costs = _costs(content, where, action)
        return Condition(name, costs.threshold(action), costs)
    if name == "min_probability":
        return Condition(name, documents.share(content, where, closed_above=True))
    remedy = _PROMISE_OF_ONE if content == 1 else _PROMISE_OF_ZERO if content == 0 else None
    return Condition(name, documents.share(content, where, remedy=remedy))


def _costs(value: Any, where: str, action: str) -> Costs:
    fields: Mapping[str, Any] = documents.fields_of(value, where, {"false_positive", "false_negative", "review"})
    false_positive, false_negative = (
        documents.positive(documents.required(fields, name, where), f"{where}/{name}")
        for name in ("false_positive", "false_negative")
    )
    review = fields.get("review")
    if action == REVIEW:
        review = documents.required(fields, "review", where)
    review = None if review is None else documents.positive(review, f"{where}/review")
    costs = Costs(false_positive, false_negative, review)
    if costs.threshold(action) > 1:
        raise PolicyError(
            "A review that costs more than the mistake it prevents never pays: no row would reach this band.",
            where=f"{where}/review",
            found=costs.review,
            expected=f"at most {costs.false_negative:g}",
            remedy="Leave the band out, or correct the costs.",
        )
    return costs
