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
    read_at: str = Field(description="When the rows were read.")
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


class LabelledSet(Answer):
    """Labelled rows that were uploaded: what they are, not the rows."""

    id: str
    model: str
    sha256: str
    bytes: int
    rows: int
    kind: Literal["logits", "inputs"]
    represents: Literal["traffic"] | None
    labels: dict[str, int] = Field(description="Rows by label.")
    segments: list[str]
    by: str
    created_at: str


class LabelledSetPage(Answer):
    """Labelled sets, newest first."""

    items: list[LabelledSet]


class Share(Answer):
    """The share of a class."""

    source: float = Field(description="That the calibrator in service is right for.")
    target: float
    interval: tuple[float, float] | None = Field(description="Of the target, where it was estimated.")


class Shift(Answer):
    """The calibrator for other shares of the classes. `decisions` and `policies` are those of a proposal."""

    model: str
    base: str
    revision: str | None
    state: Literal["dry_run", "proposed"]
    priors: dict[str, Share] = Field(description="By label.")
    rows: int = Field(description="Recent predictions that were read.")
    assumes: str
    summary: str
    decisions: Document | None = None
    policies: dict[str, Document] | None = None


class Threshold(Answer):
    """Where a band begins."""

    probability: float
    score: float | None = Field(description="What rows of equal probability are told apart by.")


class Certificate(Answer):
    """What is promised of a band, and the rows that show it or do not."""

    metric: str
    at_least: float | None
    at_most: float | None
    delta: float
    n: int
    errors: int | None
    looks: int
    basis: str
    window: tuple[str, str] | None = Field(description="First and last time of the rows.")
    valid: bool
    reason: str | None = Field(description="Why it is not valid.")
    needed: int | None = Field(description="Labels that are missing, at least.")
    segment: str | None


class SolvedBand(Answer):
    """A band with its threshold."""

    action: str
    threshold: Threshold | None
    certificate: Certificate | None


class SolvedPolicy(Answer):
    """A policy with its thresholds and certificates."""

    policy: Document
    version: int
    bands: list[SolvedBand]
    review_all: bool = Field(description="Whether rows get the fallback, for want of a certificate.")
    segments: dict[str, Document] = Field({}, description="Bands of its segments, by value.")


class ProposedPolicy(RevisionSummary):
    """The revision that puts a policy into force."""

    policy: SolvedPolicy
    warnings: list[str]


class Simulation(Answer):
    """What a policy would have done on recent traffic."""

    model: str
    revision: str
    policy: str
    against: str | None
    window: tuple[str, str] | None
    review_all: bool
    certified: dict[str, Certificate]
    warnings: list[str]
    rows: int
    labelled: int
    decisions: Document
    actions: dict[str, Document]
    expected: list[Document]


class Monitor(Answer):
    """A test that goes on for as long as its certificate, or calibrator, is in force."""

    evidence: float
    peak: float
    fires_at: float
    level: float
    place: int = Field(description="How many monitors of its kind there were, this one included.")
    p_value: float
    rows: int
    unlabelled: int
    cohorts: int
    since: str
    through: str
    fired_at: str | None


class MonitoredCertificate(Answer):
    """A certificate in force, and whether it still holds."""

    name: str
    policy: str
    action: str
    segment: str | None
    metric: str
    at_least: float | None
    at_most: float | None
    valid: bool
    reason: str | None
    monitor: Monitor | None


class Alarm(Answer):
    """The calibration alarm."""

    fired: bool
    tolerance: float | None
    job: str | None = Field(description="The refit that it has started.")
    monitor: Monitor | None


class Monitoring(Answer):
    """Whether certificates hold, whether probabilities are calibrated, and what labels say of the traffic."""

    model: str
    revision: str
    maturity_s: float
    window_s: float
    alpha: float
    certificates: list[MonitoredCertificate]
    alarm: Alarm
    estimates: Document | None


class Erased(Answer):
    """How much was erased of a subject."""

    model: str
    predictions: int
    inputs: int
    labels: int
    receipts: int
    labelled_sets: list[str] = Field(description="Those with rows of the group, which stay.")


class ModelState(Answer):
    """A model and what it serves: nothing but `revision`, null, where it serves nothing."""

    model: str
    loaded: bool
    epoch: int
    revision: str | None
    bundle: int | None = None
    provider: str | None = None
    labels: list[str] | None = None
    input: Document | None = None
    columns: list[str] | None = None
    policies: list[str] | None = None
    problem: str | None = Field(description="Why it does not serve what it should.")


class LoadedModel(ModelState):
    """A model that is served, and what was found in its folder."""

    refused: dict[str, str] = Field(description="Why, by version of the bundle.")


class ModelPage(Answer):
    """Every model."""

    items: list[ModelState]


def documented(kind: type[Answer], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what makes FastAPI describe an answer, of status 200 unless said otherwise, and leave it alone."""
    return {status: {"model": kind} for status in statuses or (200,)}
