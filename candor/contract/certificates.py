"""Thresholds, the certificates behind them, and policies that have both."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import Field

from candor.contract.conditions import Per
from candor.contract.documents import Answer

Basis = Literal["reference", "traffic", "uploaded"]


class Threshold(Answer):
    """The lowest row that a band takes: a pair of float32 numbers, compared in lexicographic order."""

    probability: float = Field(description="Calibrated probability, exact in float32.")
    score: float | None = Field(
        description="Raw score that breaks ties between equal probabilities; null takes every tie."
    )

    @classmethod
    def at(cls, probability: float, score: float) -> Self:
        """Return the threshold at a pair; a score of −inf takes every tie."""
        return cls(probability=probability, score=None if score == -math.inf else score)

    @property
    def pair(self) -> tuple[float, float]:
        """The pair to compare with: probability and score, −inf if every tie is taken."""
        return self.probability, -math.inf if self.score is None else self.score


class Certificate(Answer):
    """A bound on an error rate that held-out labelled rows support with confidence 1 − delta."""

    metric: str = Field(description="Certified metric, such as `precision`.")
    at_least: float | None = Field(description="Promised lower bound.")
    at_most: float | None = Field(description="Promised upper bound.")
    delta: float = Field(description="Error probability allowed to this claim, shared among bands and looks.")
    n: int = Field(description="Rows in the metric's denominator.")
    errors: int | None = Field(description="Rows among them that count against the promise.")
    looks: int = Field(description="Looks at these rows so far, this one included.")
    basis: Basis = Field(
        description="Rows that certify: the bundle's reference rows, labelled traffic, or uploaded rows that were "
        "declared a random sample of the traffic."
    )
    window: tuple[str, str] | None = Field(description="First and last time of these rows; null without times.")
    valid: bool = Field(description="Whether the claim stands.")
    reason: str | None = Field(None, description="Why it does not stand; null when valid.")
    needed: int | None = Field(
        None, description="Minimum number of additional labels that would certify it, if none of them is an error."
    )
    segment: str | None = Field(None, description="Part of the traffic that the claim covers; null for all of it.")
    per: Per = Field(
        "group",
        description="What the claim counts: each `row`, each unit of the rows' `amount`, or each `group` once, however "
        "many rows it has. `group` in certificates of earlier versions.",
    )
    groups: int | None = Field(None, description="Groups of the rows in the denominator, where groups repeat.")
    group_limit: float | None = Field(
        None,
        description="Maximum rows (per amount: maximum amount) that a group counts with, where groups repeat.",
    )
    wrong_labels: float = Field(
        0.0,
        description="Share of the labels of these rows that may be wrong, whichever they are, without making the claim "
        "less certain. `errors` counts the labels as they are.",
    )

    per_day: int | None = Field(
        None,
        description="Promised maximum of rows a day that are taken or explored, where the promise is one: `at_most` is "
        "this number divided by `rows_per_day`. The certificate holds `at_most`; null for other promises.",
    )
    rows_per_day: int | None = Field(
        None, description="Rows of a day, given by the policy or measured when it was solved; null for other promises."
    )


class AppliedSegment(Answer):
    """What is certified of one segment."""

    uses_fallback: bool = Field(description="Whether its rows get the policy's fallback, for lack of a certificate.")
    certified: dict[str, Certificate] = Field(description="Certificates by action.")


class SetCertificate(Answer):
    """What is certified of prediction sets.

    With probability 1 − delta over the rows that certify, the sets of at least `coverage` of the later rows have the
    true label: with `per_class`, of the rows of each true label.
    """

    coverage: float = Field(description="Promised coverage.")
    per_class: bool = Field(description="Whether it holds for the rows of each true label.")
    score: Literal["lac", "aps", "raps"]
    delta: float = Field(description="Error probability allowed to this claim, shared among looks and promises.")
    n: int = Field(description="Labelled rows that certify, one of each group.")
    per: Per = Field("group", description="What the claim counts: each `group` once, however many rows it has.")
    expected: float = Field(
        description="Mean coverage over draws of the rows that certify; with `per_class`, of the class with the least."
    )
    looks: int = Field(description="Looks at these rows so far, this one included.")
    basis: Basis
    window: tuple[str, str] | None
    valid: bool = Field(description="Whether the claim is of use; otherwise every set has every label.")
    reason: str | None = Field(None, description="Why it is not; null when valid.")
    needed: int = Field(description="Labelled rows, with `per_class` of each class, below which a set has every label.")
    segment: str | None = Field(None, description="Part of the traffic that the claim covers; null for all of it.")
    always: tuple[str, ...] = Field((), description="Labels that are in every set, for lack of rows.")
    size: float | None = Field(None, description="Mean number of labels in the sets of the rows that certify.")
    empty: float | None = Field(None, description="Share of these sets that are empty.")
    full: float | None = Field(None, description="Share of these sets with every label.")


class SolvedSet(SetCertificate):
    """Prediction sets with their thresholds."""

    thresholds: tuple[float | None, ...] = Field(
        description="Largest score with which each label is in a set, in the order of the labels; null for any."
    )


class PolicyCertificates(Answer):
    """What is certified of a policy."""

    review_all: bool = Field(
        description="Whether every row goes to review (with segments: to the fallback), for lack of a certificate."
    )
    certified: dict[str, Certificate] = Field(description="Certificates by action; empty with segments.")
    segments: dict[str, AppliedSegment] = Field({}, description="With segments: what is certified of each, by value.")
    sets: dict[str, SetCertificate] = Field(
        {}, description="What is certified of prediction sets, by segment; the empty text stands for all rows."
    )


class SolvedBand(Answer):
    """A band of a policy with its threshold."""

    action: str
    threshold: Threshold | None = Field(
        description="Null for the last band, which takes every row, where no threshold can be certified, and where the "
        "threshold depends on the amount of each row."
    )
    certificate: Certificate | None = Field(description="Null where the policy promises nothing.")

    @property
    def stands(self) -> bool:
        """Whether its promise, if any, is certified."""
        return self.certificate is None or self.certificate.valid


class SolvedSegment(Answer):
    """A segment of a policy with its own thresholds."""

    bands: tuple[SolvedBand, ...]
    certified: bool = Field(description="Whether its thresholds decide; its rows get the policy's fallback otherwise.")


class Thresholds(Answer):
    """The thresholds and certificates of a policy, without the policy."""

    version: int
    bands: tuple[SolvedBand, ...] = Field(description="One for each band of the policy.")
    review_all: bool = Field(
        description="Whether rows of no segment go to review (with segments: to the fallback), for lack of a "
        "certificate."
    )
    segments: dict[str, SolvedSegment] = Field({}, description="With segments: their solutions by value.")
    sets: dict[str, SolvedSet] = Field(
        {}, description="Prediction sets by segment; the empty text stands for all rows."
    )


class SolvedPolicy(Thresholds):
    """A policy with its thresholds and certificates."""

    policy: dict[str, Any] = Field(description="The policy document.")
