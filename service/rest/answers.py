"""What the control plane answers, for the OpenAPI document alone: answers are plain documents and may hold more."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Document = dict[str, Any]


class Answer(BaseModel):
    """Fields that a later version adds are no error."""

    model_config = ConfigDict(extra="allow")


class Looks(Answer):
    """Looks at held-out rows that a job has spent: each makes the next test of the same rows stricter."""

    gate: int
    certify: dict[str, int] = Field(description="By policy.")


class Job(Answer):
    """A refit that waits, runs or has ended."""

    job: str
    model: str
    kind: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    by: str
    progress: str = Field(description="What it is doing, one short sentence; empty before it starts.")
    step: int = Field(description="Which of its steps that is, from 1; 0 before it starts.")
    steps: int
    looks: Looks | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    summary: str | None = Field(description="Of a cancelled job, whether looks are spent.")
    result: Document | None = Field(None, description="What the refit found, once it is done.")
    error: Document | None


class JobPage(Answer):
    """Jobs, newest first."""

    items: list[Job]
    next: str | None = Field(description="What `before` wants for the next page.")


class ProposedJob(Answer):
    """The revision that a dry run has become."""

    job: str
    model: str
    revision: str
    state: str
    gate: Literal["passed", "refused", "not_run"]
    summary: str


class Interval(Answer):
    """A metric on the gate rows, before and after."""

    before: float | None
    after: float | None
    interval_before: tuple[float, float] | None = None
    interval_after: tuple[float, float] | None = None
    difference_interval: tuple[float, float] | None = None


class Points(Answer):
    """A reliability diagram: one entry for each bin of confidence that holds a row."""

    confidence: list[float]
    accuracy: list[float]
    count: list[int]
    lower: list[float]
    upper: list[float]


class Reliability(Answer):
    """The reliability diagrams of both sides."""

    before: Points
    after: Points


class Counts(Answer):
    """Answers by bin of confidence."""

    right: list[int]
    wrong: list[int]


class Confidence(Answer):
    """How the confidences of right and of wrong answers are spread."""

    edges: list[float]
    before: Counts
    after: Counts


class Refit(Answer):
    """What a refit found, and what came of it."""

    job: str
    model: str
    base: str
    epoch: int
    mode: str
    revision: str | None
    state: Literal["dry_run", "refused", "proposed", "active"]
    rows: Document
    gate: Document
    metrics: dict[str, Interval]
    decomposition: Document
    reliability: Reliability | None
    confidence: Confidence | None
    decisions: Document
    policies: dict[str, Document]
    summary: str


class RevisionSummary(Answer):
    """A revision in a list."""

    id: str
    state: Literal["active", "previous", "proposed", "refused", "rejected", "superseded"]
    parent: str | None
    bundle: int
    cause: str
    by: str
    gate: Literal["passed", "refused", "not_run"]
    created_at: str
    summary: str | None


class RevisionPage(Answer):
    """Revisions, newest first."""

    active: str
    previous: str | None
    epoch: int
    items: list[RevisionSummary]
    next: str | None


class Revision(RevisionSummary):
    """A revision whole."""

    model: str
    bundle_id: str
    model_digest: str
    calibrator: Document
    policies: dict[str, Document]
    report: Document


class Moved(Answer):
    """The pointer after a move."""

    active: str
    previous: str | None
    epoch: int
    warnings: list[str] = Field([], description="Certificates that the move has lost.")


class Rejected(Answer):
    """A proposal that was turned down."""

    id: str
    state: Literal["rejected"]
    by: str
    reason: str


class AuditEntry(Answer):
    """One thing that was done."""

    id: int
    at: str
    by: str
    action: str
    subject: str
    detail: Document


class AuditPage(Answer):
    """What was done, newest first."""

    items: list[AuditEntry]
    next: int | None


def documented(kind: type[Answer], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return what makes FastAPI describe an answer, and leave it alone."""
    return {status: {"model": kind}}
