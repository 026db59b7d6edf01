"""Recalibration jobs over HTTP: list, follow, cancel, and keep what a dry run found."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from candor.contract.jobs import Job, JobPage, JobState, ProposedJob
from service.operations import jobs
from service.rest.dependencies import Caller, RuntimeDep
from service.rest.responses import sent


async def list_jobs(
    runtime: RuntimeDep,
    model: Annotated[str | None, Query(description="Only jobs of this model.")] = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="`next` of the previous page.")] = None,
) -> Response:
    """List jobs, newest first, without their results."""
    return sent(await jobs.list_jobs(runtime, model=model, of_state=state, limit=limit, before=before))


async def get_job(runtime: RuntimeDep, job: str) -> Response:
    """Return a job: its state, its progress, and its result when it is done."""
    return sent(await jobs.get_job(runtime, job))


async def cancel_job(runtime: RuntimeDep, by: Caller, job: str) -> Response:
    """End a job that is queued or running. Looks that it has used stay used; `looks` counts them."""
    return sent(await jobs.cancel(runtime, job, by=by))


async def propose_job(runtime: RuntimeDep, by: Caller, job: str) -> Response:
    """Keep what a dry run found as a proposal, without another look, while its base is active."""
    kept = await jobs.propose(runtime, job, by=by)
    return sent(kept, 201, location=f"/v1/models/{kept.model}/revisions/{kept.revision}")


def add_to(router: APIRouter) -> None:
    """Mount the endpoints."""
    for path, method, handler, answer, status in (
        ("/v1/jobs", "GET", list_jobs, JobPage, 200),
        ("/v1/jobs/{job}", "GET", get_job, Job, 200),
        ("/v1/jobs/{job}", "DELETE", cancel_job, Job, 200),
        ("/v1/jobs/{job}/propose", "POST", propose_job, ProposedJob, 201),
    ):
        router.add_api_route(
            path, handler, methods=[method], tags=["recalibration"], status_code=status, response_model=answer
        )
