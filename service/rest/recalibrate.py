"""POST …/recalibrate: start a recalibration, and return what it found."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from candor.contract.jobs import Job
from candor.contract.recalibration import (
    Recalibration,
    RecalibrationLimits,
    RecalibrationRequest,
    RecalibrationSource,
)
from service.errors import InputValueError, UnsupportedMediaTypeError
from service.operations import recalibration as operation
from service.operations.jobs import described
from service.places import in_query
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.documents import load_document
from service.rest.exchange import query_values
from service.rest.labelled_sets import CONTENT, IntakeDep
from service.rest.payloads import JSON_TYPE, media_type_of
from service.rest.responses import sent
from service.rest.schemas import ref
from service.row_files.check import MEDIA_TYPES
from service.state.labelled_sets import Represents

_LONGEST_WAIT_S = 60


_OPTIONS = tuple(name for name in RecalibrationRequest.model_fields if name not in ("source", "limits"))
_LIMITS = RecalibrationLimits.model_fields


async def _asked(
    request: Request, runtime: RuntimeDep, intake: IntakeDep, model: ModelDep, by: Caller
) -> RecalibrationRequest:
    """Return what is asked for: in JSON, or in the query where the body is labelled rows, which are stored."""
    media_type = media_type_of(request.headers.get("content-type"))
    if media_type in MEDIA_TYPES:
        known = (*_OPTIONS, *_LIMITS, "represents")
        options: dict[str, Any] = query_values(request.scope["query_string"], known)
        represents = _represents(options.pop("represents", None))
        if "columns" in options:  # a list, which no other parameter is
            with suppress(orjson.JSONDecodeError):  # else it stays a text, which is refused
                options["columns"] = orjson.loads(options["columns"])
        limits = {name: _number(name, options.pop(name)) for name in _LIMITS if name in options}
        body = _validated({**options, "limits": limits}, "query")
        operation.checked(runtime, model, body, by=by)  # before a byte is read
        found, _ = await intake.take(request.scope, request.receive, model, represents=represents, by=by)
        return body.model_copy(update={"source": RecalibrationSource(labelled_set=found.id)})
    query_values(request.scope["query_string"], ())  # ?mode=propose here would be a dry run, and spend a look
    content = await request.body()
    if not content:
        return RecalibrationRequest()
    if media_type != JSON_TYPE:
        raise UnsupportedMediaTypeError(
            f"A recalibration cannot be requested in {media_type!r}.",
            found=media_type,
            expected=[JSON_TYPE, *MEDIA_TYPES],
        )
    return _validated(load_document(content), "body")


def _represents(value: str | None) -> Represents | None:
    if value is None or value == "traffic":
        return value  # type: ignore[return-value]  # mypy does not narrow to a literal
    raise InputValueError(
        "Labelled rows can only represent the traffic.",
        where=in_query("represents"),
        found=value,
        expected="traffic",
    )


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputValueError(
            "A limit is a number.", where=in_query(name), found=text[:100], expected="such as 0.05"
        ) from None


def _validated(document: dict[str, Any], where: str) -> RecalibrationRequest:
    try:
        return RecalibrationRequest.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False)
        hidden = ("limits",) if where == "query" else ()  # a query names the limits themselves
        places = ([part for part in one["loc"] if part not in hidden] for one in found)
        raise RequestValidationError(
            [{**one, "loc": (where, *place)} for one, place in zip(found, places, strict=True)]
        ) from error


AskedDep = Annotated[RecalibrationRequest, Depends(_asked)]


async def recalibrate(
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    body: AskedDep,
    prefer: Annotated[str | None, Header(description="`wait=30` waits that many seconds for the result.")] = None,
) -> Response:
    """Recalibrate on labelled rows and test the result against the active calibrator.

    The rows are labelled traffic or an uploaded labelled set: `source` says which. Labelled rows can also be the body
    itself, as …/labelled-sets takes them; the other fields of the JSON body, and those of its `limits`, are then query
    parameters.

    Answers 202 with the job's Location, or 200 with the result when it is done within the time that Prefer names.
    """
    job = await operation.recalibrate(runtime, model, body, by=by, wait_s=_wait_seconds(prefer))
    location = f"/v1/jobs/{job.id}"
    if job.result is None:
        return sent(described(job), 202, location=location)
    return JSONResponse(job.result, headers={"location": location})  # as it was stored


def _wait_seconds(prefer: str | None) -> float:
    for preference in (prefer or "").split(","):
        match = re.fullmatch(r"\s*wait\s*=\s*(\d{1,9})\s*", preference)
        if match:
            return min(int(match[1]), _LONGEST_WAIT_S)
    return 0.0


_CONTENT = {JSON_TYPE: {"schema": ref(RecalibrationRequest)}, **CONTENT}


def add_to(router: APIRouter) -> None:
    """Mount the endpoint."""
    router.add_api_route(
        "/recalibrate",
        recalibrate,
        methods=["POST"],
        tags=["recalibration"],
        response_model=Recalibration,
        responses={202: {"model": Job, "description": "The job is queued or running."}},
        openapi_extra={"requestBody": {"required": False, "content": _CONTENT}},
    )
