"""List recalibration jobs, follow them, cancel them, and keep what a dry run found."""

from __future__ import annotations

import asyncio
from typing import Any

from candor.contract.jobs import Job, JobPage, JobState, ProposedJob
from service.operations.principal import Principal
from service.recalibration.task import STEPS
from service.runtime import Runtime
from service.state import jobs as state
from service.times import iso


async def list_jobs(
    runtime: Runtime,
    *,
    model: str | None = None,
    of_state: JobState | None = None,
    limit: int,
    before: str | None = None,
) -> JobPage:
    """Return a page of jobs, newest first, without their results."""
    page = await runtime.jobs.page(model=model, state=of_state, limit=limit + 1, before=before)
    items = []
    for job in page[:limit]:
        result, fields = job.result or {}, _fields(job)
        del fields["result"]
        fields |= {"revision": result.get("revision"), "summary": result.get("summary") or fields["summary"]}
        items.append(Job.model_construct(**fields))
    return JobPage.model_construct(items=tuple(items), next=page[limit - 1].id if len(page) > limit else None)


def unfinished_jobs(runtime: Runtime, *, by: Principal) -> tuple[Job, ...]:
    """Return the queued and running jobs of the models that the caller may reach, oldest first."""
    found = state.JobStore(runtime.database).unfinished()
    return tuple(described(job) for job in found if by.sees(job.model))


async def get_job(runtime: Runtime, job: str) -> Job:
    """Return a job: its state, its progress, and its result when it is done.

    Raises:
        UnknownJobError: The id is unknown.
    """
    return described(await runtime.jobs.get(job))


async def cancel(runtime: Runtime, job: str, *, by: Principal) -> Job:
    """End a job that is queued or running. Looks that it has used stay used.

    Raises:
        UnknownJobError: The id is unknown.
        JobStateError: It has ended, or its result is being kept already.
    """
    return described(await runtime.jobs.cancel(job, by=by.name))


async def propose(runtime: Runtime, job: str, *, by: Principal) -> ProposedJob:
    """Keep what a dry run found as a proposal, without another look, while its base is active.

    Raises:
        UnknownJobError: The id is unknown.
        JobStateError: It is not a finished dry run, or its base is no longer active.
    """
    revision = await runtime.jobs.propose(job, by=by.name, by_key=by.prefix)
    states = await asyncio.to_thread(runtime.revisions.states, revision.model)
    return ProposedJob(
        job=job,
        model=revision.model,
        revision=revision.id,
        state=states[revision.id],
        gate=revision.gate,
        summary=revision.report["summary"],
    )


def described(job: state.Job) -> Job:
    """Return a job as answers show it."""
    return Job.model_construct(**_fields(job))  # its result was stored as a document, and is shown as it is


def _fields(job: state.Job) -> dict[str, Any]:
    times = {key: getattr(job, key) for key in ("created_at", "started_at", "finished_at")}
    return {
        "job": job.id,
        "model": job.model,
        "kind": job.kind,
        "state": job.state,
        "by": job.by,
        "progress": job.progress,
        "step": job.step,
        "steps": STEPS,
        "looks": job.looks,
        **{key: None if us is None else iso(us) for key, us in times.items()},
        "summary": _cancelled(job) if job.state == "cancelled" else None,
        "result": job.result,
        "error": job.error,
    }


def _cancelled(job: state.Job) -> str:
    if job.looks is None:
        return "Cancelled before it looked at gate or certify rows: no look is used."
    return "Cancelled after it had begun to look at gate or certify rows: those looks stay used."
