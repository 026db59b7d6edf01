"""Recalibration jobs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from candor.contract.documents import Answer
from candor.contract.recalibration import Recalibration

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
GateState = Literal["passed", "refused", "not_run"]


class Looks(Answer):
    """Looks at held-out rows that a job has used: each makes the next test of the same rows stricter."""

    gate: int
    certify: dict[str, int] = Field(description="By policy.")


class JobError(Answer):
    """Why a job failed."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    kind: str = Field(alias="class", description="Kind of error, such as `TooFewLabelsError`.")
    message: str
    where: str | None = Field(description="Part of the request that is at fault.")
    found: Any
    expected: Any
    remedy: str | None = Field(description="What to do about it.")


class Job(Answer):
    """A recalibration that is queued, running or finished. In a list, it has `revision` and no `result`."""

    job: str
    model: str
    kind: str
    state: JobState
    by: str = Field(description="Name of the API key that started it.")
    progress: str = Field(description="Current step in a few words; empty before the start.")
    step: int = Field(description="Current step, from 1; 0 before the start.")
    steps: int = Field(description="Number of steps.")
    looks: Looks | None = Field(description="Looks used so far; null before the first.")
    created_at: str = Field(description="Time (ISO 8601, UTC).")
    started_at: str | None
    finished_at: str | None
    summary: str | None = Field(
        description="Of a cancelled job: whether looks are used. In a list, also what a finished job found."
    )
    result: Recalibration | None = Field(None, description="What a finished job found.")
    error: JobError | None
    revision: str | None = Field(None, description="In a list: the proposal that the job made.")


class JobPage(Answer):
    """Jobs, newest first, without their results."""

    items: tuple[Job, ...]
    next: str | None = Field(description="Value of `before` for the next page; null on the last.")


class ProposedJob(Answer):
    """The revision made from a dry run."""

    job: str
    model: str
    revision: str
    state: str = Field(description="State of the revision.")
    gate: GateState
    summary: str
