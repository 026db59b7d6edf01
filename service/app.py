"""The service as an ASGI application: one `create_app(settings)`, and the only place where errors become HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import re
import time
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from service import errors
from service.dashboard import pages
from service.dashboard import routes as dashboard
from service.dashboard.session import Sessions
from service.errors import CandorError
from service.ids import new_ids
from service.rest import control, predict, predict_openapi
from service.rest.access import Access, needed_scope
from service.rest.bodies import ClientGoneError, LimitedReceive, Receive, Scope, Send, header
from service.rest.compression import ENCODINGS, Unpacked
from service.rest.decoding import Decoders
from service.rest.labelled_sets import is_upload
from service.rest.payloads import media_type_of
from service.rest.rates import Rates
from service.rest.request_log import RequestLog, describe
from service.rest.security import security_headers
from service.rest.uploads.intake import Intake
from service.rest.v2 import control as v2_control
from service.rest.v2 import infer
from service.rest.v2 import openapi as v2_openapi
from service.rest.v2.errors import sentence
from service.runtime import Runtime
from service.settings import Settings
from service.state.keys import KeyStore
from service.state.traffic import Traffic
from service.version import VERSION

logger = structlog.get_logger(__name__)

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
    errors.IdempotencyConflictError: 409,
    errors.EpochRequiredError: 428,
    errors.EpochStaleError: 412,
    errors.UnauthenticatedError: 401,
    errors.ForbiddenError: 403,
    errors.RateLimitedError: 429,
    errors.BundleRefusedError: 409,
    errors.UnavailableError: 503,
    errors.DeadlineExceededError: 504,
}
_PREDICT = re.compile(r"(?:/v1/models/(?P<model>[^/]+))?/predict")
_INFER = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")
_V2 = re.compile(r"/v2(?:/.*)?", re.DOTALL)  # a path may hold a line break
# Health, and documentation that holds nothing the source does not say (docs/decisions/0003-open-paths.md).
_OPEN = re.compile(rf"/livez|/readyz|/v2/health/(?:live|ready)|/openapi\.json|/docs(?:/.*)?|{dashboard.OPEN.pattern}")
_PRUNE_EVERY_S = 3600.0
_CLIENT_GONE = 499
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
_BODIES_IN_HAND = 8  # of the largest size, that may wait to be decoded
_LONGEST_ECHO = 500  # characters of what a client sent that an error repeats
_NO_OBJECT = ("model_type", "model_attributes_type", "dict_type")  # Pydantic's words for it name classes of ours
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Candor:
    """The outermost ASGI callable: request ids, keys, limits, counting; predictions go straight to the hot path.

    Args:
        api: FastAPI application of everything that is not a prediction.
        runtime: The parts of the service.
        access: Who may do what.
        sessions: Who looks at the dashboard.
    """

    def __init__(self, api: FastAPI, runtime: Runtime, access: Access, sessions: Sessions) -> None:
        self.api = api
        self.runtime = runtime
        # Request ids: what no other process has, and a number.
        self._start, self._numbers = new_ids(1)[0], itertools.count(1)
        self._access = access
        self._sessions = sessions
        self._max_body = runtime.settings.max_body_bytes
        self._decoders = Decoders(max_waiting_bytes=_BODIES_IN_HAND * self._max_body)
        self._predict = predict.Predict(runtime.models, runtime.settings, runtime.metrics, self._decoders)
        self._infer = infer.Infer(runtime.models, runtime.settings, runtime.metrics, self._decoders)
        self._tracing = runtime.tracing
        self._request_log = RequestLog(runtime.settings.access_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] != "http":
            await self.api(scope, receive, send)
            return
        if self._tracing is None:
            await self._answer_request(scope, receive, send)
            return
        with self._tracing.request(scope["method"], header(scope, b"traceparent")) as span:
            status = await self._answer_request(scope, receive, send)
            attributes = describe(scope)
            self._tracing.ended(span, scope["method"], _route(scope), status, attributes)
            if "answer" in scope:
                self._tracing.stages(scope["times"], scope["answer"].timing)

    async def _answer_request(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Answer one request; returns the status."""
        given = header(scope, b"x-request-id")
        began = time.perf_counter()
        request_id = given if given and _REQUEST_ID.fullmatch(given) else f"{self._start}-{next(self._numbers)}"
        structlog.contextvars.bind_contextvars(request_id=request_id)
        status = 0

        async def noting_send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id.encode()),
                    *security_headers(scope["path"]),
                ]
            await send(message)

        try:
            await self._answer(scope, receive, noting_send)
        except ClientGoneError:
            status = status or _CLIENT_GONE
        except CandorError as error:
            await _send(respond(error, scope), noting_send)
        except Exception:
            logger.exception("unexpected error", path=scope["path"])
            if not status:
                await _send(_unexpected(scope), noting_send)
        route, seconds = _route(scope), time.perf_counter() - began
        self.runtime.metrics.requested(route, scope["method"], status, seconds)
        quiet = route == "/metrics" or _OPEN.fullmatch(scope["path"]) is not None
        self._request_log.ended(scope, route, status, seconds, quiet=quiet)
        return status

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if "\n" in path:  # a route's pattern ends before a last one too, where those of scopes and open paths do not
            raise errors.NotFoundError("No path holds a line break.", found=path, remedy="See /docs for what there is.")
        visited = dashboard.OWN.fullmatch(path) is not None
        if visited:
            scope["visit"] = self._sessions.visit(scope)
        if not _OPEN.fullmatch(path):
            principal = await (self._sessions if visited else self._access).principal(scope)
            scope["principal"] = principal
            if needed := needed_scope(scope["method"], path):
                principal.require(needed)
        if is_upload(scope["method"], path, media_type_of(header(scope, b"content-type"))):
            await self.api(scope, receive, send)  # what reads it has limits of its own
            return
        if header(scope, b"content-encoding") is not None:
            receive = Unpacked(scope, receive, self._max_body, self._decoders)
        prediction = _PREDICT.fullmatch(path)
        inference = None if prediction else _INFER.fullmatch(path)
        if prediction is None and inference is None:
            await self.api(scope, LimitedReceive(receive, self._max_body), send)
        elif scope["method"] != "POST":
            await _send(_blank(405, "Method Not Allowed", scope, {"allow": "POST"}), send)
        elif inference is not None:
            await self._infer(scope, receive, send, inference["model"], inference["version"])
        elif prediction is not None:
            await self._predict(scope, receive, send, prediction["model"])


def create_app(settings: Settings) -> Candor:
    """Build the service: state opened, models loaded and proven, ready to be served.

    Raises:
        CandorError: The service cannot start like this.
    """
    runtime = Runtime.open(settings)
    try:
        access = Access(KeyStore(runtime.database), Rates(settings.key_requests_per_s))
        access.check_bind(settings.host)
    except CandorError:
        runtime.close()
        raise

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_follow(runtime, access)), asyncio.create_task(_prune(runtime))]
        await runtime.jobs.resume()
        runtime.monitors.start()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await runtime.jobs.close()
            await asyncio.to_thread(runtime.close)

    api = FastAPIOffline(  # its /docs works without a content-delivery network
        title="Candor",
        version=VERSION,
        summary="Calibrated probabilities and certified decisions over HTTP.",
        lifespan=lifespan,
        redoc_url=None,
        static_url="/docs/static",
        swagger_ui_oauth2_redirect_url="/docs/oauth2-redirect",
    )
    sessions = Sessions(access, runtime.database.secret)
    api.state.runtime = runtime
    api.state.sessions = sessions
    api.state.traffic = Traffic(runtime.database)
    api.state.intake = Intake(runtime)
    api.include_router(control.router())
    api.include_router(v2_control.router())
    for router in dashboard.routers():
        api.include_router(router)
    _add_operations(api, runtime, access)
    _add_error_handlers(api)
    api.openapi = lambda: _openapi(api)  # type: ignore[method-assign]  # FastAPI's documented way to extend the document
    return Candor(api, runtime, access, sessions)


def respond(error: CandorError, scope: Scope) -> Response:
    """Return an error in the words of the protocol that the request's path belongs to."""
    status, headers = _status(error)
    if "visit" in scope:
        return pages.problem(scope, error, status, headers)
    if not _V2.fullmatch(scope["path"]):
        return problem(error)
    return JSONResponse({"error": sentence(error)}, status, headers)


def problem(error: CandorError) -> Response:
    """Return an error as an RFC 9457 problem document."""
    status, headers = _status(error)
    document = {"type": f"/errors/{error.kind}", "title": error.title, "status": status, "detail": str(error)}
    for key in ("where", "found", "expected", "remedy"):
        if (value := getattr(error, key)) is not None:
            document[key] = value[:_LONGEST_ECHO] if isinstance(value, str) else value
    return _problem(document, headers)


def _status(error: CandorError) -> tuple[int, dict[str, str]]:
    """Return an error's status, and the headers that go with it."""
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


def _blank(status: int, title: str, scope: Scope, headers: dict[str, str], **more: str) -> Response:
    """Return an error that says no more than its status."""
    if "visit" in scope:
        return pages.blank(scope, status, title)
    if _V2.fullmatch(scope["path"]):
        return JSONResponse({"error": ". ".join([title, *more.values()])}, status, headers)
    return _problem({"type": "about:blank", "title": title, "status": status, **more}, headers)


def _problem(document: dict[str, Any], headers: dict[str, str]) -> Response:
    try:
        content = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS, default=str)
    except TypeError:  # what was found may hold half a surrogate pair, or an integer beyond 64 bits
        content = json.dumps(document, default=str).encode()
    return Response(content, document["status"], headers, media_type="application/problem+json")


def _unexpected(scope: Scope) -> Response:
    error = CandorError("Something went wrong that should not; it is in the log under the request id.")
    return respond(error, scope)


async def _send(response: Response, send: Send) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})


def _route(scope: Scope) -> str:
    """Return the path's template, so that counters have few labels."""
    if _PREDICT.fullmatch(scope["path"]):
        return "/predict" if scope["path"] == "/predict" else "/v1/models/{model}/predict"
    if inference := _INFER.fullmatch(scope["path"]):
        return "/v2/models/{model}/versions/{version}/infer" if inference["version"] else "/v2/models/{model}/infer"
    return getattr(scope.get("route"), "path", "") or "unmatched"


async def _follow(runtime: Runtime, access: Access) -> None:
    while True:
        await asyncio.sleep(runtime.settings.poll_interval_s)
        try:
            await asyncio.to_thread(runtime.models.follow)
            await asyncio.to_thread(access.refresh)
        except errors.StateUnavailableError as error:
            logger.warning("keys not read again", error=str(error))
        except Exception:
            logger.exception("following the state failed")


async def _prune(runtime: Runtime) -> None:
    while runtime.retention.needed:
        try:
            await asyncio.to_thread(runtime.retention.run)
        except errors.StateUnavailableError as error:
            logger.warning("old rows not deleted", error=str(error))
        except Exception:
            logger.exception("deleting old rows failed")
        await asyncio.sleep(_PRUNE_EVERY_S)


def _add_operations(api: FastAPI, runtime: Runtime, access: Access) -> None:
    started = time.monotonic()

    @api.get("/livez", tags=["operation"])
    async def livez() -> dict[str, Any]:
        """Say that the process runs."""
        return {"live": True, "uptime_s": round(time.monotonic() - started, 1), "version": VERSION}

    @api.get("/readyz", tags=["operation"], responses={503: {"description": "Not every model serves what it should."}})
    async def readyz(request: Request, response: Response) -> dict[str, Any]:
        """Say whether every model serves what the state names; which, and why not, to who has a key."""
        problems = runtime.models.problems()
        if problems:
            response.status_code = 503
        ready = {"ready": not problems, "stale_for_s": round(runtime.models.stale_for_s, 1)}
        if not await access.knows(request.scope):
            return ready
        served = {model.name: model.plane.served and model.plane.served.revision.id for model in runtime.models.all()}
        return {**ready, "models": served, "problems": problems}

    @api.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    def metrics() -> Response:  # not on the event loop: it takes milliseconds
        """Return counters in Prometheus' text format."""
        return Response(runtime.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _methods(api: FastAPI, scope: Scope) -> list[str]:
    """Return every method that a path has; Starlette names those of the first route alone."""
    asked = ({**scope, "method": method} for method in _METHODS)
    return [one["method"] for one in asked if any(route.matches(one)[0] is Match.FULL for route in api.routes)]


def _add_error_handlers(api: FastAPI) -> None:
    @api.exception_handler(CandorError)
    async def domain(request: Request, error: CandorError) -> Response:
        return respond(error, request.scope)

    @api.exception_handler(ClientGoneError)
    @api.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=_CLIENT_GONE)  # nobody reads it; the count shows that clients give up

    @api.exception_handler(Exception)
    async def unexpected(request: Request, _: Exception) -> Response:
        return _unexpected(request.scope)

    @api.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = "/".join(str(part) for part in first["loc"][1:])
        if first["type"] == "json_invalid":
            return respond(
                errors.MalformedBodyError(
                    f"The body is not JSON: {first['ctx']['error']}.",
                    where=f"character {first['loc'][-1]}",
                    expected="a JSON object",
                ),
                request.scope,
            )
        found = first.get("input")
        if isinstance(found, bytes):  # FastAPI leaves a body alone that does not call itself JSON
            return respond(
                errors.UnsupportedMediaTypeError(
                    "This endpoint reads JSON only.",
                    found=request.headers.get("content-type", "no content type"),
                    expected=["application/json"],
                ),
                request.scope,
            )
        said = "This must be a JSON object" if first["type"] in _NO_OBJECT else first["msg"]
        return respond(
            errors.InputError(
                f"{said}.",
                where=f"/{where}" if first["loc"][0] == "body" else where,
                found=found if isinstance(found, str | int | float | bool) else type(found).__name__,
                expected=first.get("ctx", {}).get("expected", said),
            ),
            request.scope,
        )

    @api.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, CandorError):  # raised while FastAPI was reading the body
            return respond(error.__cause__, request.scope)
        if isinstance(error.__cause__, ValueError | RecursionError):
            unreadable = errors.MalformedBodyError(f"The body is no JSON that can be read: {error.__cause__}.")
            return respond(unreadable, request.scope)
        more = {"found": request.url.path, "remedy": "See /docs for what there is."} if error.status_code == 404 else {}
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers = {"allow": ", ".join(_methods(api, request.scope))}
        return _blank(error.status_code, error.detail, request.scope, headers, **more)


def _openapi(api: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document with the hot path's operations, problem answers and the key scheme in it."""
    if api.openapi_schema is None:
        document = get_openapi(title=api.title, version=api.version, summary=api.summary, routes=api.routes)
        paths = {
            "/v1/models/{model}/predict": predict_openapi.path_item(default=False),
            "/predict": predict_openapi.path_item(default=True),
            "/v2/models/{model}/infer": v2_openapi.inference(versioned=False),
            "/v2/models/{model}/versions/{version}/infer": v2_openapi.inference(versioned=True),
        }
        document["paths"] = {**paths, **document["paths"]}
        components = document.setdefault("components", {})
        components["parameters"] = {"ContentEncoding": _CONTENT_ENCODING}
        components["responses"] = {"Problem": _PROBLEM, "V2Error": v2_openapi.ERROR}
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "cnd_…"}}
        document["security"] = [{"key": []}]
        for path, item in document["paths"].items():
            error = {"$ref": f"#/components/responses/{'V2Error' if _V2.fullmatch(path) else 'Problem'}"}
            for operation in item.values():
                if "requestBody" in operation:
                    encoding = {"$ref": "#/components/parameters/ContentEncoding"}
                    operation["parameters"] = [*operation.get("parameters", ()), encoding]
                operation["responses"].pop("422", None)
                operation["responses"].setdefault("4XX", error)
                operation["responses"].setdefault("5XX", error)
                if _OPEN.fullmatch(path):
                    operation["security"] = []
        api.openapi_schema = document
    return api.openapi_schema


_CONTENT_ENCODING = {
    "name": "Content-Encoding",
    "in": "header",
    "required": False,
    "description": "How the body is compressed. It is read up to the same size as one that is not.",
    "schema": {"type": "string", "enum": [*ENCODINGS, "identity"]},
}
_PROBLEM = {
    "description": "A problem document (RFC 9457) that says what was found, what was expected and what to do.",
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                    "where": {"type": "string"},
                    "found": {},
                    "expected": {},
                    "remedy": {"type": "string"},
                },
            },
            "example": {
                "type": "/errors/input-shape",
                "title": "Wrong input shape",
                "status": 422,
                "detail": "The model takes examples of shape [8, 8, 1].",
                "where": "/inputs/0",
                "found": [28, 28],
                "expected": [8, 8, 1],
                "remedy": "Send one example of that shape, or a batch of them with one more axis in front.",
            },
        }
    },
}
