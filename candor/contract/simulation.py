"""Simulation: what a policy would have done on recent traffic."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ConfigDict, Field

from candor.contract.certificates import PolicyCertificates
from candor.contract.changes import Volume
from candor.contract.documents import Answer, Body, Interval, Text
from candor.contract.times import Time

MOST_SIMULATED: Final = 50_000
"""Maximum number of rows in a simulation."""


class SimulationRequest(Body):
    """The policy to simulate, the rows, and what to compare with."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "document": {
                    "positive": "7",
                    "bands": [{"action": "flag", "when": {"min_precision": 0.9}}, {"action": "allow"}],
                },
                "rows": 20000,
            }
        }
    )

    document: dict[str, Any] | None = Field(
        None, description="Policy document, as PUT takes it; default: the policy in force under this name."
    )
    against: Text | None = Field(
        None, description="Policy in force to compare with; default: the one of the same name, if any."
    )
    since: Time | None = Field(None, description="Predictions made at or after this time.")
    until: Time | None = Field(None, description="Predictions made before this time.")
    rows: int = Field(
        20_000,
        ge=1,
        le=MOST_SIMULATED,
        description="Maximum number of predictions, newest first; fewer where their logits exceed 64 MiB.",
    )
    flips: int = Field(100, ge=0, le=MOST_SIMULATED, description="Maximum number of changed rows to list.")


class Flip(Answer):
    """A row whose action changes."""

    id: str = Field(description="Id of the prediction.")
    before: str
    after: str


class Change(Answer):
    """Number of rows that go from one action to another."""

    before: str
    after: str
    rows: int


class Changes(Answer):
    """Rows whose action changes."""

    flipped: int | None = Field(description="Rows that get another action; null without a policy to compare with.")
    of: int = Field(description="Rows simulated.")
    changes: tuple[Change, ...]
    flips: tuple[Flip, ...] = Field(description="Changed rows, up to the requested number.")


class ShareEstimate(Answer):
    """An estimated share of the traffic."""

    value: float | None = Field(description="Share among rows with a known label; null without any.")
    interval: Interval = Field(description="Exact 95 % interval that holds whatever the unknown labels are.")
    n: int = Field(description="Rows with a known label in the denominator.")
    unknown: int = Field(description="Rows with an unknown label that may belong to the denominator.")


class Forecast(Answer):
    """What to expect of the rows that a band, or one before it, takes. One row of each group counts."""

    action: str
    precision: ShareEstimate = Field(description="Share of positives among these rows.")
    recall: ShareEstimate = Field(description="Share of all positives that these rows contain.")
    false_positive_rate: ShareEstimate = Field(description="Share of all negatives that these rows contain.")
    flag_rate: ShareEstimate = Field(description="Share of all rows, labelled or not.")


class SimulatedDecisions(Answer):
    """What a policy would have done with rows that did not solve it."""

    rows: int = Field(description="Rows simulated.")
    labelled: int = Field(description="Rows among them with a label that was sought.")
    decisions: Changes
    actions: dict[str, Volume] = Field(description="Rows by action; every row counts.")
    expected: tuple[Forecast, ...] = Field(description="One for each band but the last.")


class Simulation(SimulatedDecisions, PolicyCertificates):
    """What a policy would have done on recent traffic."""

    model: str
    revision: str = Field(description="Revision to activate to put the policy into force.")
    policy: str = Field(description="Policy and version, such as `auto-read@3`.")
    against: str | None = Field(description="Policy and version compared with; null for none.")
    window: tuple[str, str] | None = Field(description="Times of the oldest and the newest row; null without rows.")
    warnings: tuple[str, ...] = Field(description="Where nothing is certified, and how many labels are missing.")
