"""The gate: the comparison that a recalibration must pass, and the caps on what it changes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from candor.contract.documents import Answer, Interval

GateMode = Literal["superior", "non_inferior"]
CapName = Literal["flipped", "flag_rate", "flag_rate_ratio", "probability_change"]


class Comparison(Answer):
    """One loss before and after, on the same rows."""

    before: float
    after: float
    difference: float = Field(description="`after` minus `before`; negative is better.")
    interval_before: Interval = Field(description="95 % interval of `before`.")
    interval_after: Interval = Field(description="95 % interval of `after`.")
    interval: Interval = Field(description="95 % interval of the difference.")
    upper: float = Field(
        description="Upper bound of the difference at the gate's level. It also counts one group with its worst "
        "possible labels, so it may exceed the interval."
    )
    margin: float = Field(description="The upper bound must stay below this.")


class Cap(Answer):
    """A limit on what a recalibration changes on recent rows."""

    name: CapName = Field(
        description="`flipped`: share of rows that get another action. `flag_rate`: share that gets the action of the "
        "policy's first band. `flag_rate_ratio`: that share after divided by before. `probability_change`: largest "
        "change of a class probability in 99 % of the rows."
    )
    policy: str | None = Field(description="Policy whose decisions change; null for probabilities.")
    count: int = Field(description="Rows that change, or that get the action.")
    of: int = Field(description="Rows compared, one of each group; for the ratio, rows with the action before.")
    value: float | None = Field(description="Observed value; null where it is infinite.")
    upper: float | None = Field(description="Upper bound in the population; null where it is infinite.")
    at_most: float | None = Field(description="Largest bound allowed; null without a limit.")
    holds: bool = Field(description="Whether the bound is within the limit.")


class Gate(Answer):
    """The gate's verdict."""

    mode: GateMode
    passed: bool
    difference: float = Field(description="Mean difference of the log loss in nats; negative is better.")
    upper: float = Field(description="Its upper bound at level `alpha`.")
    alpha: float = Field(description="Level of this look.")
    attempt: int = Field(description="Looks at these gate rows so far, this one included.")
    rows: int = Field(description="Rows compared.")
    groups: int = Field(description="Groups among them.")
    errors: int = Field(
        description="Rows whose active label is wrong; of a model with two classes, rows of the rarer class."
    )
    excluded: int = Field(description="Rows left out, because their propensity is unknown, zero or thinned away.")
    nll: Comparison = Field(description="Log loss in nats.")
    brier: Comparison = Field(description="Brier score.")
    reason: str = Field(description="The verdict in words.")
    unidentified_share: float = Field(description="Share of the gate's traffic that no label represents.")
    missing_share: float = Field(description="Share of sought labels that have not arrived, or that the model lacks.")
    caps: tuple[Cap, ...]
    unattended: bool = Field(description="Whether it may be activated without a person.")
    unattended_reason: str | None = Field(description="Why not; null when it may.")
