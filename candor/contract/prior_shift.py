"""Prior shift: adjust the active calibrator to new class frequencies."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import ConfigDict, Field

from candor.contract.certificates import PolicyCertificates
from candor.contract.changes import DecisionChanges
from candor.contract.documents import Answer, Body, Interval, Text
from candor.contract.times import Time

MOST_ESTIMATED: Final = 200_000
"""Maximum number of predictions to estimate class frequencies from."""
LEAST_ESTIMATED: Final = 100
"""Minimum number of predictions to estimate class frequencies from."""


class PriorShiftEstimate(Body):
    """Recent predictions, labelled or not, to estimate the class frequencies from."""

    since: Time | None = Field(None, description="Predictions made at or after this time.")
    until: Time | None = Field(None, description="Predictions made before this time.")
    rows: int = Field(
        20_000,
        ge=LEAST_ESTIMATED,
        le=MOST_ESTIMATED,
        description="Maximum number of predictions, newest first; fewer where their logits exceed 64 MiB.",
    )


class PriorShiftRequest(Body):
    """The new class frequencies: either known (`target`) or estimated from recent predictions (`estimate`)."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"mode": "propose", "estimate": {"since": "2026-11-01T00:00:00Z"}}}
    )

    mode: Literal["dry_run", "propose"] = Field(
        "dry_run", description="`dry_run` keeps nothing and uses no look; `propose` keeps a proposal."
    )
    target: dict[Text, float] | None = Field(
        None,
        min_length=1,
        description="Known class frequencies by label, each in (0, 1). Classes not named share the rest in their "
        "previous proportions.",
    )
    estimate: PriorShiftEstimate | None = Field(
        None, description="Instead of `target`: maximum-likelihood estimate, without labels."
    )
    source: dict[Text, float] | None = Field(
        None,
        min_length=1,
        description="Class frequencies that the active calibrator was fitted for. Default: those of the bundle's "
        "reference rows; required where the calibrator was fitted on traffic.",
    )


class ClassShare(Answer):
    """The frequency of a class."""

    source: float = Field(description="Frequency that the active calibrator was fitted for.")
    target: float = Field(description="New frequency.")
    interval: Interval | None = Field(description="95 % interval of an estimated `target`; null for a known one.")


class PriorShiftReport(Answer):
    """What a prior shift changes."""

    priors: dict[str, ClassShare] = Field(description="Class frequencies by label.")
    rows: int = Field(description="Recent predictions read.")
    assumes: str = Field(description="The assumption that no label tests.")
    summary: str


class PriorShift(PriorShiftReport):
    """The active calibrator, adjusted to new class frequencies."""

    model: str
    base: str = Field(description="Revision whose calibrator was adjusted.")
    revision: str | None = Field(description="The proposal; null for a dry run.")
    state: Literal["dry_run", "proposed"]
    decisions: DecisionChanges | None = Field(None, description="Of a proposal: decisions that change.")
    policies: dict[str, PolicyCertificates] | None = Field(None, description="Of a proposal: certificates by policy.")
