"""Refit jobs over HTTP: list, follow, cancel, and keep what a dry run has found."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from service.refit import STEPS
from service.rest import answers
from service.rest.dependencies import Caller, RuntimeDep
from service.state.jobs import Job, JobState
from service.times import iso


async def list_jobs(
    runtime: RuntimeDep,
    model: Annotated[str | None, Query(description="Only this model's.")] = None,
    state: Annotated[JobState | None, Query(description="Only those in this state.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="`next` of the page before.")] = None,
) -> dict[str, Any]:
    """List jobs, newest first, without their results."""
    page = await runtime.jobs.page(model=model, state=state, limit=limit + 1, before=before)
    items = []
    for job in page[:limit]:
        result = job.result or {}
        brief = {"revision": result.get("revision"), "summary": result.get("summary") or document(job)["summary"]}
        items.append({**{key: value for key, value in document(job).items() if key != "result"}, **brief})
    return {"items": items, "next": page[limit - 1].id if len(page) > limit else None}


async def get_job(runtime: RuntimeDep, job: str) -> dict[str, Any]:
    """Return a job: its state, its progress, and its result when it is done."""
    return document(await runtime.jobs.get(job))


async def cancel_job(runtime: RuntimeDep, by: Caller, job: str) -> dict[str, Any]:
    """End a job that is queued or running. Looks that it has spent stay spent; `looks` counts them."""
    return document(await runtime.jobs.cancel(job, by=by.name))


async def propose_job(runtime: RuntimeDep, by: Caller, job: str, response: Response) -> dict[str, Any]:
    """Keep what a dry run has found as a proposal, without another look, while its base is still in service."""
    revision = await runtime.jobs.propose(job, by=by.name, by_key=by.prefix)
    states = await run_in_threadpool(runtime.revisions.states, revision.model)
    response.headers["location"] = f"/v1/models/{revision.model}/revisions/{revision.id}"
    return {
        "job": job,
        "model": revision.model,
        "revision": revision.id,
        "state": states[revision.id],
        "gate": revision.gate,
        "summary": revision.report["summary"],
    }


def document(job: Job) -> dict[str, Any]:
    """Return a job as answers show it."""
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


def _cancelled(job: Job) -> str:
    if job.looks is None:
        return "Cancelled before it looked at gate or certify rows: no look is spent."
    return "Cancelled after it had begun to look at gate or certify rows: those looks stay spent."


def add_to(router: APIRouter) -> None:
    """Mount the endpoints."""
    one, page = answers.documented(answers.Job), answers.documented(answers.JobPage)
    router.add_api_route("/v1/jobs", list_jobs, methods=["GET"], tags=["recalibration"], responses=page)
    router.add_api_route("/v1/jobs/{job}", get_job, methods=["GET"], tags=["recalibration"], responses=one)
    router.add_api_route("/v1/jobs/{job}", cancel_job, methods=["DELETE"], tags=["recalibration"], responses=one)
    router.add_api_route(
        "/v1/jobs/{job}/propose",
        propose_job,
        methods=["POST"],
        status_code=201,
        tags=["recalibration"],
        responses=answers.documented(answers.ProposedJob, 201),
    )
