"""Backtests: a policy solved on the earlier part of logged traffic, judged on the later part."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from candor.contract.documents import Answer, Body, Interval, Text
from candor.contract.times import Time

MOST_BACKTESTED: Final = 50_000
"""Maximum number of rows in a backtest."""


class BacktestRequest(Body):
    """The policy to replay, and the rows."""

    document: dict[str, Any] | None = Field(
        None, description="Policy document, as PUT takes it; default: the policy in force under this name. Not kept."
    )
    against: Text | None = Field(
        None, description="Policy whose decisions are shown beside; default: the one of the same name."
    )
    since: Time | None = Field(None, description="Predictions made at or after this time.")
    until: Time | None = Field(None, description="Predictions made before this time.")
    rows: int = Field(
        20_000,
        ge=1,
        le=MOST_BACKTESTED,
        description="Maximum number of fit rows, newest first; fewer where their logits exceed 64 MiB.",
    )


class WeightedEstimate(Answer):
    """An estimate for the identified rows, from sought labels weighted by their inverse propensity."""

    value: float | None = Field(description="The estimate; null without labels that speak for it.")
    interval: Interval | None = Field(
        description="Approximate 95 % interval, clustered by group; null with fewer than 25 labelled groups, or where "
        "all of them agree."
    )


class BacktestedOutcome(Answer):
    """What actions do to the identified rows; a row is taken by every band but the last."""

    actions: dict[str, int] = Field(description="Judged rows by action, identified or not.")
    caught: WeightedEstimate = Field(description="Positive rows taken.")
    missed: WeightedEstimate = Field(description="Positive rows left to the last band.")
    precision: WeightedEstimate = Field(description="Share of positives among the rows taken.")
    prevented: WeightedEstimate = Field(description="Amounts of the positive rows taken.")
    lost: WeightedEstimate = Field(description="Amounts of the positive rows left to the last band.")
    friction: WeightedEstimate = Field(
        description="Cost of acting on rows that are not positive, and of reviews (0 without a cost `review`), by "
        "the costs of the policy; null without a condition `cost`."
    )


class OtherThreshold(Answer):
    """What would have happened if the rows from some probability on had been taken."""

    probability: float = Field(description="Calibrated probability from which rows are taken.")
    rows: int = Field(description="Judged rows at or above it, identified or not.")
    unidentified: int = Field(description="Rows among them whose label could never come; nothing is known of these.")
    caught: WeightedEstimate = Field(description="Positive rows taken.")
    precision: WeightedEstimate = Field(description="Share of positives among the rows taken.")
    prevented: WeightedEstimate = Field(description="Amounts of the positive rows taken.")


class Backtest(Answer):
    """A policy on the later part of the traffic, beside what was decided.

    All rows have the role fit, about a third of the groups: no certificate and no gate ever uses them, so a backtest
    uses no look. Totals are of the judged rows, not of the traffic.
    """

    model: str
    policy: str = Field(description="Name of the policy.")
    window: tuple[str, str] | None = Field(description="Times of the oldest and the newest row; null without rows.")
    judged_from: str | None = Field(description="Time from which rows are judged; earlier rows solve the thresholds.")
    solving: int = Field(description="Rows that solved the thresholds; no group of theirs is judged.")
    judged: int = Field(description="Rows judged.")
    labelled: int = Field(description="Rows among them whose label was sought and has come.")
    awaited: int = Field(
        description="Rows among them whose label was sought and has not come; estimates leave them out."
    )
    unidentified: int = Field(
        description="Rows among them that were explored with propensity 0, or with unknown propensity: no estimate "
        "covers these."
    )
    without_amount: int = Field(description="Judged rows without an amount; they count as 0 in sums of money.")
    effective: float = Field(description="Kish effective number of labelled rows under the weights.")
    capped: int = Field(description="Labelled rows whose weight was cut to the largest weight, which biases estimates.")
    review_all: bool = Field(
        description="Whether the earlier rows certify too little: the policy would have sent all rows to review."
    )
    warnings: tuple[str, ...] = Field(description="Reasons why the estimates may be too good, or cannot be compared.")
    thresholds: dict[str, float | None] = Field(description="Solved probability by action; empty with segments.")
    then: BacktestedOutcome = Field(description="What the policy would have done.")
    now: BacktestedOutcome | None = Field(
        description="What the policy `against` decided at the time, of the same rows; null if it decided none of them."
    )
    lower: tuple[OtherThreshold, ...] = Field(description="Other thresholds, highest first.")
