"""Errors to HTTP: problem documents (RFC 9457), errors of /v2, pages. No other module chooses a status."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, Protocol

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from service import errors
from service.errors import CandorError, kind_of
from service.places import Place, in_body, in_query
from service.rest.bodies import ClientGoneError, Scope
from service.rest.compression import ENCODINGS
from service.rest.paths import V2
from service.rest.payloads import some_of

CLIENT_GONE: Final = 499

_STATUS: dict[type[CandorError], int] = {
    CandorError: 500,
    errors.InputError: 422,
    errors.MalformedBodyError: 400,
    errors.BodyTooLargeError: 413,
    errors.UnsupportedMediaTypeError: 415,
    errors.FeedbackError: 422,
    errors.PolicyError: 422,
    errors.NotFoundError: 404,
    errors.TooFewLabelsError: 422,
    errors.RevisionStateError: 409,
    errors.LabelledSetStateError: 409,
    errors.JobStateError: 409,
    errors.CaseStateError: 409,
    errors.IdempotencyConflictError: 409,
    errors.EpochRequiredError: 428,
    errors.EpochStaleError: 412,
    errors.UnauthenticatedError: 401,
    errors.ForbiddenError: 403,
    errors.RateLimitedError: 429,
    errors.BundleRefusedError: 409,
    errors.UnavailableError: 503,
    errors.DeadlineExceededError: 504,
    errors.UpstreamRejectedError: 502,
    errors.UpstreamAnswerError: 502,
    errors.UpstreamSlowError: 504,
}
_LONGEST_ECHO = 500  # characters of client data in an error
_OBJECT = "This must be a JSON object", "object"
_TIME = "This is not a time with its zone", "a time such as 2026-11-28T09:30:00Z"
_SAID = {  # where pydantic's own words name our classes, or are no help
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), _OBJECT),
    **dict.fromkeys(("datetime_parsing", "datetime_from_date_parsing", "timezone_aware"), _TIME),
    "missing": ("This field is required", "a value"),
    "extra_forbidden": ("This field is unknown", "no such field"),
    "too_short": ("There are too few items", "at least {min_length}"),
    "too_long": ("There are too many items", "at most {max_length}"),
    "string_too_short": ("The text is too short", "at least {min_length} characters"),
    "string_too_long": ("The text is too long", "at most {max_length} characters"),
    "string_pattern_mismatch": ("The text has characters that are not allowed here, or another form", "{pattern}"),
}
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


class Pages(Protocol):
    """Errors as pages of the dashboard."""

    def problem(self, scope: Scope, error: CandorError, status: int, headers: dict[str, str]) -> Response:
        """Return an error as a page."""

    def blank(self, scope: Scope, status: int, heading: str, headers: dict[str, str]) -> Response:
        """Return a page with the status alone."""


class Problems:
    """Answer errors in the protocol of the path.

    Args:
        pages: Pages for visitors of the dashboard.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def respond(self, error: CandorError, scope: Scope) -> Response:
        """Return an error in the protocol of the path."""
        error = errors.for_clients(error)
        status, headers = _status_of(error)
        if "visit" in scope:
            return self._pages.problem(scope, error, status, headers)
        if not V2.fullmatch(scope["path"]):
            return problem(error)
        return JSONResponse({"error": error.as_one_text()}, status, headers)

    def blank(self, status: int, title: str, scope: Scope, headers: dict[str, str], **more: str) -> Response:
        """Return an error with its status alone."""
        if "visit" in scope:
            return self._pages.blank(scope, status, title, headers)
        if V2.fullmatch(scope["path"]):
            return JSONResponse({"error": ". ".join([title, *more.values()])}, status, headers)
        return _problem({"type": "about:blank", "title": title, "status": status, **more}, headers)

    def unexpected(self, scope: Scope) -> Response:
        """Return the error for an unexpected exception."""
        error = CandorError("Unexpected error. The log has the details under the request id.")
        return self.respond(error, scope)

    def add_handlers(self, api: FastAPI) -> None:
        """Register these answers with FastAPI."""

        @api.exception_handler(CandorError)
        async def domain(request: Request, error: CandorError) -> Response:
            return self.respond(error, request.scope)

        @api.exception_handler(ClientGoneError)
        @api.exception_handler(ClientDisconnect)
        async def gone(_: Request, __: Exception) -> Response:
            return Response(status_code=CLIENT_GONE)  # for the count only

        @api.exception_handler(Exception)
        async def unexpected(request: Request, _: Exception) -> Response:
            return self.unexpected(request.scope)

        @api.exception_handler(RequestValidationError)
        async def validation(request: Request, error: RequestValidationError) -> Response:
            content_type = request.headers.get("content-type", "no content type")
            return self.respond(invalid(error.errors()[0], content_type), request.scope)

        @api.exception_handler(HTTPException)
        async def http(request: Request, error: HTTPException) -> Response:
            if isinstance(error.__cause__, CandorError):  # raised while FastAPI read the body
                return self.respond(error.__cause__, request.scope)
            if isinstance(error.__cause__, ValueError | RecursionError):
                unreadable = errors.MalformedBodyError(f"The body is not valid JSON: {error.__cause__}.")
                return self.respond(unreadable, request.scope)
            more = {"found": request.url.path, "remedy": "See /docs for all paths."} if error.status_code == 404 else {}
            headers = dict(error.headers or {})
            if error.status_code == 405:
                headers = {"allow": ", ".join(_methods(api, request.scope))}
            return self.blank(error.status_code, error.detail, request.scope, headers, **more)


def invalid(first: Mapping[str, Any], content_type: str = "application/json") -> CandorError:
    """Return our error for the first of pydantic's, whose location begins with "body", "query" or another source."""
    source, *path = first["loc"]
    match source:
        case "body":
            where: Place | str = in_body(*path)
        case "query":
            where = in_query([part for part in path if isinstance(part, str)][-1])  # of limits, the field
        case _:
            where = "/".join(map(str, path))
    if first["type"] == "json_invalid":
        return errors.MalformedBodyError(
            f"The body is not JSON: {first['ctx']['error']}.",
            where=f"character {first['loc'][-1]}",
            expected="a JSON object",
        )
    found = first.get("input")
    if isinstance(found, bytes):  # FastAPI does not parse a body without a JSON content type
        return errors.UnsupportedMediaTypeError(
            "The endpoint accepts JSON only.", found=content_type, expected=["application/json"]
        )
    said, expected = _SAID.get(first["type"], (first["msg"], ""))
    context = first.get("ctx", {})
    return errors.InputError(
        f"{said.removesuffix('.')}.",
        where=where,
        found=context.get("found", _shown(found, first["type"])),
        expected=context.get("expected") or expected.format(**context) or first["msg"].removeprefix("Input should be "),
        remedy=context.get("remedy"),
    )


def _shown(found: Any, kind: str) -> Any:
    """Return what was found where pydantic has an error, as clients may read it."""
    if kind == "missing" and isinstance(found, Mapping):
        return some_of(dict(found))
    if kind in ("too_short", "too_long") and isinstance(found, list):
        return f"{len(found)} items"
    return found if isinstance(found, str | int | float | bool) else kind_of(found)


def problem(error: CandorError) -> Response:
    """Return an error as an RFC 9457 problem document."""
    error = errors.for_clients(error)
    status, headers = _status_of(error)
    document = {"type": f"/errors/{error.kind}", "title": error.title, "status": status, "detail": str(error)}
    for key in ("where", "found", "expected", "remedy"):
        if (value := getattr(error, key)) is not None:
            if isinstance(value, float) and not math.isfinite(value):
                value = str(value)  # JSON would have null
            document[key] = value[:_LONGEST_ECHO] if isinstance(value, str) else value
    return _problem(document, headers)


def _status_of(error: CandorError) -> tuple[int, dict[str, str]]:
    """Return the status and headers of an error."""
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    if status == 503:
        return status, {"retry-after": "1"}
    if isinstance(error, errors.RateLimitedError):
        return status, {"retry-after": str(math.ceil(error.retry_after_s))}
    if status == 401:
        return status, {"www-authenticate": "Bearer"}
    if isinstance(error, errors.UnsupportedEncodingError):
        return status, {"accept-encoding": ", ".join(ENCODINGS)}
    return status, {}


def _problem(document: dict[str, Any], headers: dict[str, str]) -> Response:
    try:
        content = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS, default=str)
    except TypeError:  # `found` may contain a lone surrogate, or an integer beyond 64 bits
        try:
            content = json.dumps(document, default=str).encode()
        except RecursionError:
            content = orjson.dumps(document | {"found": "a value that is nested deeply"}, default=str)
    return Response(content, document["status"], headers, media_type="application/problem+json")


def _methods(api: FastAPI, scope: Scope) -> list[str]:
    """Return all methods of a path; Starlette names those of the first route only."""
    asked = ({**scope, "method": method} for method in _METHODS)
    found = [one["method"] for one in asked if any(route.matches(one)[0] is Match.FULL for route in api.routes)]
    return [name for method in found for name in ([method, "HEAD"] if method == "GET" else [method])]
