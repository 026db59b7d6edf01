"""POST …/recalibrate: start a refit, and say what it found."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import AwareDatetime, ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError
from starlette.concurrency import run_in_threadpool

from calibrators import CALIBRATORS
from service.decisions.unattended import Limits
from service.errors import (
    InputValueError,
    JobStateError,
    TooFewLabelsError,
    UnsupportedMediaTypeError,
    error_from_document,
)
from service.jobs import limits_of
from service.models import Model
from service.refit import UNCHANGED, RefitRequest
from service.rest import answers
from service.rest.access import Principal
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.exchange import query_values
from service.rest.jobs import document
from service.rest.labelled_sets import CONTENT, IntakeDep
from service.rest.payloads import JSON_TYPE, load_json, media_type_of
from service.rest.schema import Body, Text
from service.rest.uploads.check import MEDIA_TYPES
from service.runtime import Runtime
from service.state.labelled_sets import Represents
from service.state.window import Window
from service.times import iso, microseconds

_LONGEST_WAIT_S = 60
_EXAMPLE: JsonDict = {
    "mode": "dry_run",
    "calibrator": "temperature",
    "source": {"feedback": {"since": "2026-11-01T00:00:00Z"}},
}


class ImplicitNegative(Body):
    """What it means that a source has said nothing: an assumption, so such rows fit and never certify or gate."""

    label: Text = Field(description="The label that its silence means.")
    source: Text = Field(
        max_length=100, description="Whose silence it is: chargebacks, complaints …; goes into the report."
    )
    maturity_days: float = Field(gt=0, le=3650, description="By then it would have spoken.")
    actions: list[Text] = Field(
        min_length=1,
        max_length=20,
        description="It speaks of rows that got one of these: nobody complains of what was blocked.",
    )


class FeedbackSource(Body):
    """Which predictions' labels a refit takes."""

    since: AwareDatetime | None = Field(None, description="Predictions made at or after this time.")
    until: AwareDatetime | None = Field(None, description="Predictions made before this time.")
    unknown_propensity: Literal["exclude", "fit"] = Field(
        "exclude", description="Whether labels that nobody sought may enter the fit. They never certify and never gate."
    )
    implicit_negative: ImplicitNegative | None = Field(
        None,
        description="Silence as a label, where a source would have spoken by now; left out: it means nothing.",
    )
    rescore: bool = Field(
        False,
        description="Whether rows of earlier bundles whose inputs were kept (CANDOR_KEEP_INPUTS) are scored again with "
        "the model in service, and join. Not for a model that was trained on these rows.",
    )


class RecalibrateSource(Body):
    """Where the labelled rows come from: labelled traffic, or a set that was uploaded."""

    feedback: FeedbackSource | None = Field(None, description="Labelled traffic; also where nothing is said.")
    labelled_set: str | None = Field(None, description="Id of an uploaded set, such as `ls1`.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.feedback is not None and self.labelled_set is not None:
            raise PydanticCustomError("one_source", "Rows come from one of feedback and labelled_set, never from both")
        return self


class LimitsBody(Body):
    """How much a refit may change; only less than the operator's settings allow. A cap judges an upper bound."""

    unidentified: float | None = Field(None, ge=0, le=1, description="Share of rows that no label stands for.")
    missing: float | None = Field(None, ge=0, le=1, description="Share of labels sought that have not come.")
    flipped: float | None = Field(None, ge=0, le=1, description="Share of a policy's decisions that change.")
    flag_rate: float | None = Field(None, ge=0, le=1, description="Share of rows that get its first band's action.")
    flag_rate_ratio: float | None = Field(None, gt=0, description="That share after over that before.")
    probability_change: float | None = Field(
        None, ge=0, le=1, description="Largest change of a class's probability in 99 % of the rows."
    )


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
    limits: LimitsBody = LimitsBody()
    source: RecalibrateSource = RecalibrateSource()
    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})


_OPTIONS = tuple(name for name in RecalibrateBody.model_fields if name not in ("source", "limits"))


async def _asked(
    request: Request, runtime: RuntimeDep, intake: IntakeDep, model: ModelDep, by: Caller
) -> RecalibrateBody:
    """Return what is asked for: in JSON, or in the query where the body is labelled rows, which are stored."""
    media_type = media_type_of(request.headers.get("content-type"))
    if media_type in MEDIA_TYPES:
        known = (*_OPTIONS, *LimitsBody.model_fields, "represents")
        options: dict[str, Any] = query_values(request.scope["query_string"], known)
        represents = _represents(options.pop("represents", None))
        limits = {name: _number(name, options.pop(name)) for name in LimitsBody.model_fields if name in options}
        body = _validated({**options, "limits": limits}, "query")
        _check_limits(_request(body, by), limits_of(runtime.settings))  # before a byte is read
        found, _ = await intake.take(request.scope, request.receive, model, represents=represents, by=by.name)
        return body.model_copy(update={"source": RecalibrateSource(labelled_set=found.id)})
    query_values(request.scope["query_string"], ())  # ?mode=propose here would be a dry run, and spend a look
    content = await request.body()
    if not content:
        return RecalibrateBody()
    if media_type != JSON_TYPE:
        raise UnsupportedMediaTypeError(
            f"A refit is not asked for in {media_type!r}.", found=media_type, expected=[JSON_TYPE, *MEDIA_TYPES]
        )
    return _validated(load_json(content), "body")


def _represents(value: str | None) -> Represents | None:
    if value is None or value == "traffic":
        return value  # type: ignore[return-value]  # mypy does not narrow to a literal
    raise InputValueError(
        "Labelled rows represent the traffic, or nothing is said of them.",
        where="?represents",
        found=value,
        expected="traffic",
    )


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputValueError(
            "A limit is a number.", where=f"?{name}", found=text[:100], expected="such as 0.05"
        ) from None


def _validated(document: dict[str, Any], where: str) -> RecalibrateBody:
    try:
        return RecalibrateBody.model_validate(document)
    except ValidationError as error:
        raise RequestValidationError(
            [{**found, "loc": (where, *found["loc"])} for found in error.errors(include_url=False)]
        ) from error


AskedDep = Annotated[RecalibrateBody, Depends(_asked)]


async def recalibrate(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    response: Response,
    body: AskedDep,
    prefer: Annotated[str | None, Header(description="`wait=30` waits that many seconds for the result.")] = None,
) -> dict[str, Any]:
    """Refit the calibrator on labelled rows and test the result against the one in service.

    The rows are labelled traffic, or a set that was uploaded: `source` says which. Labelled rows may also be the body
    itself, as …/labelled-sets takes them; the other fields of the JSON body, and those of its `limits`, are then
    parameters of the query.

    Answers 202 with the job's Location, or 200 with the result when it is done within the time that Prefer names.
    """
    request = _request(body, by)
    _check_limits(request, limits_of(runtime.settings))
    _check_silence(model, request)
    await run_in_threadpool(_check_enough, runtime, model, request)
    wait_s = _wait_seconds(prefer)
    job = await runtime.jobs.submit(model.name, request, by=by.name, by_key=by.prefix)
    if wait_s:
        job = await runtime.jobs.wait(job.id, wait_s)
    response.headers["location"] = f"/v1/jobs/{job.id}"
    if job.error is not None:
        raise error_from_document(job.error)
    if job.result is not None:
        return job.result
    if job.state == "cancelled":
        raise JobStateError(f"Job {job.id} was cancelled.", found="cancelled", expected="a result")
    response.status_code = 202
    return document(job)


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
    source = body.source.feedback or FeedbackSource()
    since, until = (None if time is None else microseconds(time) for time in (source.since, source.until))
    if since is not None and until is not None and since >= until:
        raise InputValueError(
            "The window is empty.",
            where="/source/feedback",
            found=f"{iso(since)} to {iso(until)}",
            expected="since < until",
        )
    silence = source.implicit_negative
    if silence is not None and source.unknown_propensity == "fit":
        raise InputValueError(
            "Labels that nobody sought and silence as a label cannot both enter a fit.",
            where="/source/feedback/unknown_propensity",
            found="fit",
            expected="exclude",
            remedy="With `implicit_negative`, what a source says of a mature row is in the fit already; before that "
            "it has spoken of the positives only.",
        )
    return RefitRequest(
        mode=body.mode,
        calibrator=body.calibrator,
        since_us=since,
        until_us=until,
        unknown_propensity=source.unknown_propensity,
        gate=body.gate,
        implicit_negative=None if silence is None else silence.model_dump(),
        rescore=source.rescore,
        labelled_set=body.source.labelled_set,
        limits=body.limits.model_dump(exclude_none=True),
    )


def _check_limits(request: RefitRequest, allowed: Limits) -> None:
    for name, wanted in request.limits.items():
        most = getattr(allowed, name)
        if most is not None and wanted > most:
            raise InputValueError(
                "A request may only tighten what the operator allows.",
                where=f"/limits/{name}",
                found=wanted,
                expected=f"at most {most:g}, as CANDOR_LIMIT_{name.upper()} says",
            )


def _check_silence(model: Model, request: RefitRequest) -> None:
    """Refuse a silence that means a label which the model does not have."""
    labels = model.served.labels
    if request.implicit_negative is not None and request.implicit_negative["label"] not in labels:
        raise InputValueError(
            "The model has no such label.",
            where="/source/feedback/implicit_negative/label",
            found=request.implicit_negative["label"],
            expected=list(labels),
        )


def _check_enough(runtime: Runtime, model: Model, request: RefitRequest) -> None:
    """Refuse at once what cannot succeed, before a process is started for it."""
    wanted = runtime.settings.refit_min_rows
    if request.labelled_set is not None:
        rows = runtime.labelled_sets.get(model.name, request.labelled_set).rows
        if rows < wanted:
            raise TooFewLabelsError(
                "The labelled set has too few rows to refit.",
                where="/source/labelled_set",
                found=f"{rows} rows",
                expected=f"at least {wanted}",
                remedy="Upload more rows.",
            )
        return
    window = Window(model.name, model.served.revision.model_digest, request.since_us, request.until_us)
    spec = model.served.specification if request.rescore else None
    found = runtime.feedback.count_labelled(window, at_most=wanted, input_spec=spec)
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


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    """Return a JSON schema without references, which would lead elsewhere in the OpenAPI document."""
    if isinstance(node, dict):
        if "$ref" in node:
            return _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
        return {key: _inlined(value, definitions) for key, value in node.items() if key != "$defs"}
    return [_inlined(entry, definitions) for entry in node] if isinstance(node, list) else node


_SCHEMA = RecalibrateBody.model_json_schema()
_CONTENT = {JSON_TYPE: {"schema": _inlined(_SCHEMA, _SCHEMA["$defs"]), "example": _EXAMPLE}, **CONTENT}


def add_to(router: APIRouter) -> None:
    """Mount the endpoint that starts a refit."""
    router.add_api_route(
        "/recalibrate",
        recalibrate,
        methods=["POST"],
        tags=["recalibration"],
        responses={**answers.documented(answers.Refit), **answers.documented(answers.Job, 202)},
        openapi_extra={"requestBody": {"required": False, "content": _CONTENT}},
    )
