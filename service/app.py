"""The service as an ASGI application: the outermost callable, built by one `create_app(settings)`."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, MutableMapping
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import FastAPI
from fastapi.responses import Response
from fastapi_offline import FastAPIOffline

from service import errors
from service.dashboard import pages
from service.dashboard import routes as dashboard
from service.dashboard.forms import FORM_BYTES, check_origin
from service.dashboard.session import Sessions
from service.errors import CandorError
from service.operations import background
from service.operations.access import Access
from service.operations.decoding import Decoders
from service.operations.rates import Rates
from service.others import FOLLOW, Alone, Others
from service.rest import control, feedback, health, openapi
from service.rest.access import changes, needed_scope, on_model, sender
from service.rest.bodies import ClientGoneError, LimitedReceive, Receive, Scope, Send, header, read_body
from service.rest.compression import Unpacked
from service.rest.cors import Cors
from service.rest.direct import Direct
from service.rest.endpoints import Endpoints
from service.rest.exchange import answer
from service.rest.intake import Intake
from service.rest.labelled_sets import is_upload
from service.rest.paths import METRICS, OPEN, labels, most_bytes, predicts, route_of
from service.rest.payloads import media_type_of
from service.rest.problems import CLIENT_GONE, Problems
from service.rest.requests import Requests
from service.rest.v2 import control as v2_control
from service.rest.v2 import openapi as v2_openapi
from service.rest.v2.infer import Infer
from service.runtime import Runtime
from service.settings import Settings, is_loopback
from service.state.keys import KeyStore
from service.state.sessions import SessionStore
from service.telemetry.request_log import RequestLog, describe
from service.version import VERSION
from service.workers.plan import processors_each
from service.workers.tls import Certificates

if TYPE_CHECKING:
    from service.grpc.server import Server

logger = structlog.get_logger(__name__)

_OPEN = re.compile(f"{OPEN.pattern}|{dashboard.OPEN.pattern}")
_BODIES_IN_HAND = 8  # bodies of maximum size that may wait to be decoded


class Candor:
    """The outermost ASGI callable: request ids, keys, limits, counts. Predictions and labels bypass FastAPI.

    Args:
        api: FastAPI application for everything except predictions and labels.
        runtime: Parts of the service.
        access: Access control.
        sessions: Sessions of the dashboard.
        problems: Answers errors.
        decoders: Threads for slow decoding.
        grpc: The gRPC server, which the lifespan of `api` starts and stops; None without one.
        certificates: Those of TLS; None without it.
    """

    def __init__(
        self,
        api: FastAPI,
        runtime: Runtime,
        access: Access,
        sessions: Sessions,
        problems: Problems,
        decoders: Decoders,
        grpc: Server | None,
        certificates: Certificates | None = None,
    ) -> None:
        self.certificates = certificates
        self.api = api
        self.runtime = runtime
        self.grpc = grpc
        self._access = access
        self._sessions = sessions
        runtime.others.listen({**runtime.answers(), FOLLOW: self.follow})
        self._problems = problems
        self._max_body = runtime.settings.max_body_bytes
        self._decoders = decoders
        log, cors = RequestLog(runtime.settings.access_log), Cors(runtime.settings.cors_origins or ())
        record = runtime.access_record
        answering = (runtime.models, runtime.settings, runtime.metrics, decoders)
        self._requests = Requests(runtime.metrics, log, problems, runtime.others, cors, record, access.charge)
        self._endpoints = Endpoints(*answering, Infer(*answering))
        self._tracing = runtime.tracing

    @property
    def direct(self) -> Direct | None:
        """Answers predictions and labels without ASGI; None where a trace, or the log, takes part in an answer."""
        if self._tracing is not None or self.runtime.settings.log_mode == "sync":
            return None
        return Direct(self.runtime, self._endpoints, self._access, self._requests)

    def follow(self) -> None:
        """Read the keys, the active revisions and the desired models again.

        Raises:
            StateUnavailableError: The database does not answer; everything stays as it is.
        """
        try:
            self._access.refresh()  # first: what follows may wait for a revision that loads
        finally:
            self.runtime.models.follow()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] != "http":
            await self.api(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # checked and answered alike; the server leaves out the body
        if self._tracing is None:
            await self._answer_request(scope, receive, send)
            return
        with self._tracing.request(scope["method"], header(scope, b"traceparent")) as span:
            status = await self._answer_request(scope, receive, send)
            method, route = scope["method"], route_of(scope)
            http = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
            self._tracing.ended(span, f"{method} {route}", http | describe(scope), failed=status >= 500 or not status)
            if "answer" in scope:
                self._tracing.stages(scope["times"], scope["answer"].timing)

    async def _answer_request(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Answer one request and return the status."""
        began = time.perf_counter()
        request_id = self._requests.name(scope)
        structlog.contextvars.bind_contextvars(request_id=request_id)
        status = 0

        async def noting_send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._requests.headers(scope, request_id)]
            await send(message)

        try:
            await self._answer(scope, receive, noting_send)
        except ClientGoneError:
            status = status or CLIENT_GONE
        except CandorError as error:
            await _send(self._requests.refused(error, scope), noting_send)
        except asyncio.CancelledError:  # the server's, once a stop has waited as long as it may
            if status:
                raise
            await _send(self._requests.refused(errors.stopping(), scope), noting_send)
        except Exception as error:  # noqa: BLE001 — it is logged
            response = self._requests.failed(error, scope)
            if not status:
                await _send(response, noting_send)
        route = route_of(scope)
        quiet = route == METRICS or _OPEN.fullmatch(scope["path"]) is not None
        self._requests.ended(scope, request_id, route, status, began, quiet=quiet)
        return status

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if "\n" in path:  # routes also match before a trailing one; patterns of scopes and open paths do not
            raise errors.NotFoundError(
                "Paths cannot contain a line break.", found=path, remedy="See /docs for all paths."
            )
        if (allowed := self._requests.cors.preflight(scope)) is not None:  # it has no key
            await _send(allowed, send)
            return
        visited = dashboard.OWN.fullmatch(path) is not None
        if visited:
            scope["visit"] = await self._sessions.visit(scope)
            if scope["method"] == "POST":
                check_origin(scope)
        if not (open_ := _OPEN.fullmatch(path)):
            principal = await (self._sessions.principal(scope) if visited else sender(self._access, scope))
            scope["principal"] = principal
            needed = needed_scope(scope["method"], path)
            if path != METRICS:
                principal.require(needed)
            if principal.limited:
                scope["principal"] = here = await on_model(principal, path, scope["query_string"], self.runtime)
                if path != METRICS:
                    here.require(needed)
            if principal.prefix is not None and changes(scope["method"], path):
                await asyncio.to_thread(self.runtime.changes.spend, self.runtime.database, principal.name)
        if is_upload(scope["method"], path, media_type_of(header(scope, b"content-type"))):
            await self.api(scope, receive, send)  # uploads have their own limits
            return
        limit = FORM_BYTES if visited else min(self._max_body, most_bytes(path) or self._max_body)
        if header(scope, b"content-encoding") is not None and not (visited or open_):  # forms and pages are not encoded
            receive = Unpacked(scope, receive, limit, self._decoders)
        predicting, labelling = predicts(path), labels(path)
        if predicting is None and labelling is None:
            await self.api(scope, LimitedReceive(receive, limit), send)
        elif scope["method"] != "POST":
            await _send(self._problems.blank(405, "Method Not Allowed", scope, {"allow": "POST"}), send)
        elif predicting is not None:
            await answer(*self._endpoints.asked(predicting, scope), scope, receive, send)
        elif labelling is not None:
            request = feedback.labelling(self.runtime, labelling.model, scope)
            body = await read_body(scope, receive, limit)
            await _send(await feedback.store(self.runtime, request, body), send)


def create_app(settings: Settings, others: Others | None = None) -> Candor:
    """Build the service: open the state, load and verify the models.

    Args:
        settings: Settings of the process.
        others: The processes of the service; None for one that is alone.

    Raises:
        CandorError: The service cannot start.
    """
    runtime = Runtime.open(settings, others or Alone(leader=settings.background))
    try:
        rates = Rates(settings.key_requests_per_s, runtime.others.rates, rows_per_s=settings.key_rows_per_s)
        people = None
        if settings.oidc_issuer is not None:
            from service.operations.people import People

            people = People(settings, runtime.access_record)
        access = Access(KeyStore(runtime.database), rates, insecure=settings.insecure, people=people)
        if settings.uds is None or settings.grpc_port is not None:
            access.check_bind(settings.host)
        if settings.insecure and not access.guarded:
            logger.warning("no API key exists, and CANDOR_INSECURE is set: everyone who reaches this is administrator")
        threads = processors_each(runtime.others.processes)
        decoders = Decoders(threads, max_waiting_bytes=_BODIES_IN_HAND * settings.max_body_bytes)
        certificates = Certificates.of(settings)
        if certificates is not None:
            certificates.tell()
        elif settings.uds is None and not is_loopback(settings.host) and runtime.others.first:
            logger.warning(
                "PLAIN HTTP BEYOND THIS MACHINE: keys, rows and labels can be read on the network",
                host=settings.host,
                remedy="Set CANDOR_TLS_CERT and CANDOR_TLS_KEY, or let only a proxy that speaks TLS connect here.",
            )
        grpc = None
        if settings.grpc_port is not None:
            grpc = _grpc_server(runtime, access, decoders, settings.grpc_port, certificates)
    except CandorError:
        runtime.close()
        raise

    api = FastAPIOffline(  # /docs works offline
        title="Candor",
        version=VERSION,
        summary="Calibrated probabilities and certified decisions over HTTP.",
        lifespan=lambda _: _serving(candor, access),
        redoc_url=None,
        redirect_slashes=False,  # to a full address, whose scheme is wrong behind a proxy that speaks TLS
        generate_unique_id_function=openapi.operation_id,
        static_url="/docs/static",
        swagger_ui_oauth2_redirect_url="/docs/oauth2-redirect",
    )
    problems = Problems(pages)
    # Replicas share their sessions; a service that is alone ends them with its start.
    secret = b"" if runtime.database.shared else runtime.others.secret
    store = SessionStore(runtime.database, secret, runtime.changes)
    sessions = Sessions(access, store, runtime.database.secret)
    api.state.runtime = runtime
    api.state.sessions = sessions
    api.state.intake = Intake(runtime)
    api.state.decoders = decoders
    api.include_router(control.router())
    api.include_router(v2_control.router())
    api.include_router(health.router(runtime, access))
    for router in dashboard.routers():
        api.include_router(router)
    problems.add_handlers(api)
    api.openapi = lambda: openapi.document(api, v2_openapi.DOCUMENTED)  # type: ignore[method-assign]  # FastAPI's documented way to extend the document
    candor: Candor = Candor(api, runtime, access, sessions, problems, decoders, grpc, certificates)
    return candor


@contextlib.asynccontextmanager
async def _serving(candor: Candor, access: Access) -> AsyncIterator[None]:
    """Run the tasks and threads of the service while it serves."""
    runtime, grpc, certificates = candor.runtime, candor.grpc, candor.certificates
    await runtime.others.join()
    await asyncio.to_thread(candor.follow)  # what was activated since the models were loaded
    tasks = [asyncio.create_task(run(runtime)) for run in (background.follow, background.probe, background.record)]
    tasks.append(asyncio.create_task(background.read_keys(access, runtime.settings)))
    if access.people is not None:
        tasks.append(asyncio.create_task(access.people.follow()))
    if certificates is not None:
        tasks.append(asyncio.create_task(certificates.follow()))
    if runtime.others.first:
        tasks.append(asyncio.create_task(runtime.notices.run()))
    if runtime.others.leader:
        tasks.append(asyncio.create_task(background.prune(runtime)))
        runtime.monitors.start()
        runtime.webhooks.start()
        runtime.audit_export.start()
        runtime.log_sink.start()
    await runtime.jobs.resume()
    runtime.drift.start()  # each process collects a sample of its own rows
    runtime.upstreams.start()
    try:
        if grpc is not None:
            await grpc.start()
        yield
    finally:
        if grpc is not None:
            await grpc.stop()
        for task in tasks:
            task.cancel()
        await runtime.jobs.close()
        await asyncio.to_thread(runtime.close)


def _grpc_server(
    runtime: Runtime, access: Access, decoders: Decoders, port: int, certificates: Certificates | None
) -> Server:
    try:
        from service.grpc.server import Server
    except ImportError as error:
        raise errors.ConfigurationError(
            "gRPC requires grpcio, which is not installed.",
            where="CANDOR_GRPC_PORT",
            found=str(error),
            remedy="Install the extra `grpc`, or unset CANDOR_GRPC_PORT.",
        ) from error
    return Server(runtime, access, decoders, port, certificates)


async def _send(response: Response, send: Send) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})
