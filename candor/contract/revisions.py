"""Revisions: their history, and moving from one to another."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from candor.contract.certificates import SolvedPolicy
from candor.contract.documents import Answer, Body, Text
from candor.contract.jobs import GateState
from candor.contract.prior_shift import PriorShiftReport
from candor.contract.recalibration import RecalibrationReport
from candor.contract.traffic import Guard, TrafficChange

RevisionState = Literal["active", "previous", "proposed", "refused", "rejected", "superseded"]


class MoveRequest(Body):
    """Why the active revision is rolled back. The audit log keeps it."""

    reason: Text | None = Field(None, max_length=1000)


class GuardRequest(Body):
    """A guard: it rolls the activation back if the share of an action changes too much."""

    window: float = Field(gt=0, le=30 * 86_400, description="Seconds after the activation.")
    max_change: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Largest change of an action's share that it allows; default: the service's limit.",
    )


class ActivationRequest(MoveRequest):
    """Why a revision is activated, and what it may change."""

    accept_change: bool = Field(
        False, description="Activate it even if it changes the traffic beyond the limit; requires `reason`."
    )
    max_change: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Largest change of an action's share that needs no acceptance; can only tighten the service's "
        "limit.",
    )
    guard: GuardRequest | None = Field(None, description="Roll back if the traffic changes too much; null: do not.")


class RejectionRequest(Body):
    """Why a proposal is rejected. The audit log keeps it."""

    reason: Text = Field(max_length=1000)


class RevisionSummary(Answer):
    """A revision in a list."""

    id: str = Field(description="Such as `r7`.")
    state: RevisionState
    parent: str | None = Field(description="Revision that was active when this one was made; null for the first.")
    bundle: int = Field(description="Version of its bundle.")
    cause: str = Field(description="What made it: `bundle`, `policy`, `recalibrate` or `prior_shift`.")
    by: str = Field(description="Name of the API key that proposed it.")
    gate: GateState
    created_at: str = Field(description="Time (ISO 8601, UTC).")
    summary: str | None = Field(description="One sentence.")


class RevisionPage(Answer):
    """Revisions, newest first."""

    active: str
    previous: str | None = Field(description="Revision that a rollback returns to.")
    epoch: int = Field(description="What activate and rollback expect as If-Match.")
    items: tuple[RevisionSummary, ...]
    next: str | None = Field(description="Value of `before` for the next page; null on the last.")


class Revision(RevisionSummary):
    """A revision with its calibrator, thresholds, certificates and report."""

    model: str
    bundle_id: str = Field(description="Digest of the bundle's manifest.")
    model_digest: str = Field(description="Digest of the bundle's model; feedback belongs to it.")
    calibrator: dict[str, Any] = Field(description="Document of the calibrator.")
    policies: dict[str, SolvedPolicy] = Field(description="Policies by id.")
    report: Annotated[RecalibrationReport | PriorShiftReport | dict[str, Any], Field(union_mode="left_to_right")] = (
        Field(description="How it was found: a recalibration, a prior shift, or the bundle's own report.")
    )


class Pointer(Answer):
    """The active revision after a move."""

    active: str
    previous: str | None = Field(description="Revision that a rollback returns to.")
    epoch: int = Field(description="What the next activate or rollback expects as If-Match.")
    warnings: tuple[str, ...] = Field((), description="After an activation: certificates that were lost.")
    traffic: TrafficChange | None = Field(
        None, description="After an activation: what it does to recent predictions; null after a rollback."
    )
    guard: Guard | None = Field(None, description="Guard of the activation; null without one.")


class Rejection(Answer):
    """A rejected proposal."""

    id: str
    state: Literal["rejected"]
    by: str
    reason: str


class PolicyProposal(RevisionSummary):
    """The revision that puts a policy into force; `active` where it is in force already."""

    policy: SolvedPolicy
    warnings: tuple[str, ...] = Field(description="Where nothing is certified, and how many labels are missing.")
