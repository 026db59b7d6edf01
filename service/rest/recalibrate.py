"""POST …/recalibrate: start a refit, and say what it found. GET /v1/jobs/{id}: how far it is."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Response
from pydantic import AwareDatetime, ConfigDict, Field
from pydantic.config import JsonDict
from starlette.concurrency import run_in_threadpool

from calibrators import CALIBRATORS
from service.errors import InputValueError, TooFewLabelsError, error_from_document
from service.models import Model
from service.refit import UNCHANGED, RefitRequest
from service.rest.access import Principal
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.schema import Body
from service.runtime import Runtime
from service.state.jobs import Job
from service.state.window import Window
from service.times import iso, microseconds

_LONGEST_WAIT_S = 60
_EXAMPLE: JsonDict = {
    "mode": "dry_run",
    "calibrator": "temperature",
    "source": {"feedback": {"since": "2026-11-01T00:00:00Z"}},
}


class FeedbackSource(Body):
    """Which predictions' labels a refit takes."""

    since: AwareDatetime | None = Field(None, description="Predictions made at or after this time.")
    until: AwareDatetime | None = Field(None, description="Predictions made before this time.")
    unknown_propensity: Literal["exclude", "fit"] = Field(
        "exclude", description="Whether labels that nobody sought may enter the fit. They never certify and never gate."
    )


class RecalibrateSource(Body):
    """Where the labelled rows come from."""

    feedback: FeedbackSource = FeedbackSource()


class RecalibrateBody(Body):
    """What to refit, from what, and what may happen then."""

    mode: Literal["dry_run", "propose", "activate"] = Field(
        "dry_run",
        description="`dry_run` keeps nothing, `propose` keeps a proposal, "
        "`activate` also activates it if the gate passes (scope `approve`).",
    )
    calibrator: str | None = Field(
        None,
        description=f"One of {', '.join(CALIBRATORS)}; left out: the one in service. `{UNCHANGED}` fits nothing, and "
        "only solves the policies on labelled traffic.",
    )
    gate: Literal["superior", "non_inferior"] = Field(
        "superior", description="What must be shown; `activate` takes `superior` only."
    )
    source: RecalibrateSource = RecalibrateSource()
    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})


async def recalibrate(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    response: Response,
    body: RecalibrateBody | None = None,
    prefer: Annotated[str | None, Header(description="`wait=30` waits that many seconds for the result.")] = None,
) -> dict[str, Any]:
    """Refit the calibrator on labelled feedback and test the result against the one in service.

    Answers 202 with the job's Location, or 200 with the result when it is done within the time that Prefer names.
    """
    request = _request(body or RecalibrateBody(), by)
    await run_in_threadpool(_check_enough, runtime, model, request)
    wait_s = _wait_seconds(prefer)
    job = await runtime.jobs.submit(model.name, request, by=by.name)
    if wait_s:
        job = await runtime.jobs.wait(job.id, wait_s)
    response.headers["location"] = f"/v1/jobs/{job.id}"
    if job.error is not None:
        raise error_from_document(job.error)
    if job.result is not None:
        return job.result
    response.status_code = 202
    return _document(job)


async def job(runtime: RuntimeDep, job: str) -> dict[str, Any]:
    """Return a job: its state, its progress, and its result when it is done."""
    return _document(await runtime.jobs.get(job))


def _request(body: RecalibrateBody, by: Principal) -> RefitRequest:
    known = sorted({*CALIBRATORS, UNCHANGED})
    if body.calibrator is not None and body.calibrator not in known:
        raise InputValueError(
            f"There is no calibrator {body.calibrator!r}.",
            where="/calibrator",
            found=body.calibrator,
            expected=known,
        )
    if body.mode == "activate":
        by.require("approve")
        if body.gate != "superior":
            raise InputValueError(
                "Nothing is activated unattended unless it is shown to be better.",
                where="/gate",
                found=body.gate,
                expected="superior",
                remedy='Use {"mode": "propose"} and let a person activate the proposal.',
            )
    source = body.source.feedback
    since, until = (None if time is None else microseconds(time) for time in (source.since, source.until))
    if since is not None and until is not None and since >= until:
        raise InputValueError(
            "The window is empty.",
            where="/source/feedback",
            found=f"{iso(since)} to {iso(until)}",
            expected="since < until",
        )
    return RefitRequest(
        mode=body.mode,
        calibrator=body.calibrator,
        since_us=since,
        until_us=until,
        unknown_propensity=source.unknown_propensity,
        gate=body.gate,
    )


def _check_enough(runtime: Runtime, model: Model, request: RefitRequest) -> None:
    """Refuse at once what cannot succeed, before a process is started for it."""
    wanted = runtime.settings.refit_min_rows
    window = Window(model.name, model.served.revision.model_digest, request.since_us, request.until_us)
    found = runtime.feedback.count_labelled(window, at_most=wanted)
    if found < wanted:
        raise TooFewLabelsError(
            "There is too little labelled feedback to refit.",
            where="/source/feedback",
            found=f"{found} labelled predictions of the model in service",
            expected=f"at least {wanted}",
            remedy="Send labels to /feedback, or widen the window.",
        )


def _wait_seconds(prefer: str | None) -> float:
    for preference in (prefer or "").split(","):
        match = re.fullmatch(r"\s*wait\s*=\s*(\d{1,9})\s*", preference)
        if match:
            return min(int(match[1]), _LONGEST_WAIT_S)
    return 0.0


def _document(job: Job) -> dict[str, Any]:
    times = {key: getattr(job, key) for key in ("created_at", "started_at", "finished_at")}
    return {
        "job": job.id,
        "model": job.model,
        "kind": job.kind,
        "state": job.state,
        "progress": job.progress,
        **{key: None if us is None else iso(us) for key, us in times.items()},
        "result": job.result,
        "error": job.error,
    }


def add_to(router: APIRouter) -> None:
    """Mount the endpoint that starts a refit."""
    router.add_api_route("/recalibrate", recalibrate, methods=["POST"], tags=["recalibration"])
