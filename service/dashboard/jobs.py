"""Recalibration jobs: the form that starts one, its progress, its result; and the list of all."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from calibrators import CALIBRATORS
from candor.contract.recalibration import RecalibrationRequest
from service.dashboard import forms
from service.dashboard.pages import page
from service.errors import error_from_document
from service.operations import jobs
from service.operations.recalibration import recalibrate
from service.recalibration.task import UNCHANGED
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.runtime import Runtime

_PAGE = 50


async def ask(request: Request, model: ModelDep) -> Response:
    """Show the form that starts a recalibration."""
    return page(
        request.scope,
        "recalibrate.html",
        model=model.name,
        calibrators=[*CALIBRATORS, UNCHANGED],  # multicalibration takes columns, which the form does not ask for
        present=model.served.calibrator.name,
    )


async def start(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller) -> Response:
    """Start a recalibration."""
    fields = await forms.read(request)
    window = {name: f"{fields[name]}Z" for name in ("since", "until") if fields.get(name)}
    wanted: dict[str, Any] = {name: fields[name] for name in ("mode", "calibrator", "gate") if name in fields}
    wanted["source"] = {"feedback": window}
    body = forms.body(RecalibrationRequest, **wanted)
    started = await recalibrate(runtime, model, body, by=by)
    return forms.see(f"/dashboard/jobs/{started.id}")


async def job_page(request: Request, runtime: RuntimeDep, job: str) -> Response:
    """Show a job."""
    found = (await jobs.get_job(runtime, job)).document
    result, error = found["result"], found["error"]
    kept = result and (result["revision"] or await run_in_threadpool(_kept, runtime, found["model"], job))
    return page(
        request.scope,
        "job.html",
        job=found,
        kept=kept,
        error=None if error is None else error_from_document(error),
    )


def _kept(runtime: Runtime, model: str, job: str) -> str | None:
    """Return the id of the proposal made from a dry run, None without one."""
    revision = runtime.revisions.of_job(model, job)
    return None if revision is None else revision.id


async def jobs_page(request: Request, runtime: RuntimeDep, before: str | None = None) -> Response:
    """List jobs."""
    listed = await jobs.list_jobs(runtime, limit=_PAGE, before=before)
    return page(request.scope, "jobs.html", listed=listed, older=before is not None)


async def cancel(request: Request, runtime: RuntimeDep, by: Caller, job: str) -> Response:
    """End a job that is queued or running."""
    await forms.read(request)
    await jobs.cancel(runtime, job, by=by)
    return forms.see(f"/dashboard/jobs/{forms.part(job)}?notice=cancelled")


async def propose(request: Request, runtime: RuntimeDep, by: Caller, job: str) -> Response:
    """Keep what a dry run found as a proposal."""
    await forms.read(request)
    kept = await jobs.propose(runtime, job, by=by)
    return forms.see(f"/dashboard/models/{forms.part(kept.model)}/revisions/{forms.part(kept.revision)}")


def add_to_model(router: APIRouter) -> None:
    """Mount what belongs to a model."""
    router.add_api_route("/recalibrate", ask, methods=["GET"])
    router.add_api_route("/recalibrate", start, methods=["POST"])


def add_to(router: APIRouter) -> None:
    """Mount the jobs."""
    router.add_api_route("/jobs", jobs_page, methods=["GET"])
    router.add_api_route("/jobs/{job}", job_page, methods=["GET"])
    router.add_api_route("/jobs/{job}/cancel", cancel, methods=["POST"])
    router.add_api_route("/jobs/{job}/propose", propose, methods=["POST"])
