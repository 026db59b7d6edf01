"""Candor on Ray Serve: a deployment for each model, one for all other requests, and one that hands requests to them.

Each replica of the first two hosts the whole application, so answers are those of `candor serve`; batches, limits and
the log are the application's own. Replicas share the state in PostgreSQL. Ray starts, places and scales them.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from service.commands.local import secrets_of, settings_of
from service.commands.process import application_of
from service.dashboard import pages
from service.errors import ConfigurationError, UnavailableError
from service.others import Alone, Answer, within_s
from service.rest.bodies import Scope, header
from service.rest.paths import predicts
from service.rest.problems import Problems
from service.serving.loading import Loader
from service.settings import Settings
from service.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from ray.serve import Application
    from ray.serve.handle import DeploymentHandle

_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 — Ray's proxies listen; without knowing where, a key is required
_LOG_WRITTEN_S: Final = 30.0  # beyond the drain
_SCOPE: Final = ("type", "http_version", "method", "scheme", "path", "raw_path", "query_string", "headers", "client")
_ANSWERED_AT_ONCE: Final = 1024  # per replica: the application's own queue refuses what is too much
_WANTED_AT_ONCE: Final = 32  # requests per replica above which Ray starts another

Whole = tuple[int, Sequence[tuple[bytes, bytes]], bytes]
"""Status, headers and body."""


class Replicas(Alone):
    """The processes of the service, as the one for all other requests sees them: itself and the models' replicas.

    Args:
        models: Deployments of models.
        leader: Whether it runs jobs, monitors and retention.
    """

    def __init__(self, models: Sequence[DeploymentHandle], *, leader: bool) -> None:
        super().__init__(leader=leader)
        self._models = models
        self._loop: asyncio.AbstractEventLoop | None = None

    async def join(self) -> None:
        """Ask the models' replicas from now on."""
        self._loop = asyncio.get_running_loop()

    def ask(self, what: str) -> list[Answer]:
        """Ask every process, from a thread of its own."""
        if self._loop is None:
            return super().ask(what)
        asked = asyncio.run_coroutine_threadsafe(self._elsewhere(what), self._loop)
        return [*super().ask(what), *asked.result()]

    async def gather(self, what: str) -> list[Answer]:
        """Ask every process, from the event loop."""
        return [*super().ask(what), *await self._elsewhere(what)]

    def tell(self, what: str) -> None:
        """Have the models' replicas do something; return when they have done it, or the time is up."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._elsewhere(what), self._loop).result()

    async def _elsewhere(self, what: str) -> list[Answer]:
        told = await asyncio.gather(*(_asked(model, what) for model in self._models))
        values = [value for values in told for value in values]
        return [
            Answer(number, missing="silent" if value is None else "starting")
            if isinstance(value, BaseException | None)
            else Answer(number, value[0])
            for number, value in enumerate(values, start=2)
        ]


async def _asked(model: DeploymentHandle, what: str) -> list[Any]:
    """Return the answer of each replica of a model: in a tuple, or None, or why there is no replica."""
    try:
        values = await model.broadcast("asked", what).results_async(timeout_s=within_s(what), return_exceptions=True)
    except TimeoutError:
        return [None]
    return [value if isinstance(value, tuple) else None for value in values] or [LookupError("no replica runs")]


class Host:
    """A replica that hosts the application.

    Args:
        changes: Settings that differ from those of the replica's environment.
        models: Deployments that answer predictions; empty in those.
    """

    async def __init__(self, changes: dict[str, Any], models: Sequence[DeploymentHandle] = ()) -> None:  # type: ignore[misc]  # Ray awaits it
        import ray

        settings = _settings(changes)
        if settings.threads is None:  # the CPUs that Ray has set aside for the replica
            cpus = int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))
            settings = settings.model_copy(update={"threads": max(1, cpus)})
        configure_logs(settings.log_level, secrets_of(settings))
        self._others = Replicas(models, leader=settings.background)
        self._application = await asyncio.to_thread(application_of, settings, self._others)
        self._open = AsyncExitStack()
        api = self._application.api
        await self._open.enter_async_context(api.router.lifespan_context(api))

    async def answer(self, scope: Scope, body: bytes) -> Whole:
        """Answer a request."""
        received = iter([{"type": "http.request", "body": body, "more_body": False}])
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            # A client that goes away cancels the call.
            return next(received, None) or await asyncio.get_running_loop().create_future()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        start, *rest = sent
        return start["status"], list(start["headers"]), b"".join(message.get("body", b"") for message in rest)

    async def asked(self, what: str) -> tuple[Any]:
        """Answer a question of the deployment for all other requests."""
        return ((await asyncio.to_thread(self._others.ask, what))[0].value,)

    async def __del__(self) -> None:
        """Write the log and close the state; Ray calls this once no request is in flight."""
        if hasattr(self, "_open"):
            await self._open.aclose()


class Ingress:
    """Hands each request to the deployment that answers it.

    Args:
        control: Answers all that predicts with none of the models.
        models: Deployments by model.
    """

    def __init__(self, control: DeploymentHandle, models: dict[str, DeploymentHandle]) -> None:
        settings = _settings({})
        self._control, self._models = control, models
        self._default = settings.default_model or (next(iter(models)) if len(models) == 1 else None)
        self._max_body = settings.max_body_bytes
        self._problems = Problems(pages)

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        from ray.exceptions import RayActorError
        from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

        scope: dict[str, Any] = {name: request.scope.get(name) for name in _SCOPE}
        scope |= {"asgi": {"version": "3.0"}, "root_path": "", "server": None}
        handle = self._models.get(self._model(scope["path"]) or "", self._control)
        body = await self._body(request)
        try:
            status, headers, content = await handle.answer.remote(scope, body)
        except (RayActorError, BackPressureError, DeploymentUnavailableError) as error:
            gone = UnavailableError("The replica stopped before it answered.", found=type(error).__name__)
            return self._problems.respond(gone, scope)
        response = Response(content, status)
        response.raw_headers = [each for each in headers if each[0] != b"x-request-id"]  # Ray's proxy adds the same
        return response

    def _model(self, path: str) -> str | None:
        found = predicts(path)
        return None if found is None else found.model or self._default

    async def _body(self, request: Request) -> bytes:
        """Return the body; of one that is too large, enough for the application to refuse it."""
        announced = header(request.scope, b"content-length")
        if announced is not None and announced.isdigit() and int(announced) > self._max_body:
            return b""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._max_body:
                break
        return bytes(body)


def application() -> Application:
    """Return the application, with a deployment for each model that the folder of bundles has.

    Raises:
        ConfigurationError: The settings of the environment cannot be used, or there is no bundle.
    """
    from ray import serve

    settings = _settings({})
    loader = Loader(settings)
    loader.refresh()
    names = sorted(loader.find())
    if not names:
        raise ConfigurationError(
            f"No bundle in {settings.bundles}.",
            where="CANDOR_BUNDLES",
            expected="a folder or URL that every node can read, as `{model}/{version}/`",
        )
    options: dict[str, Any] = {
        "max_ongoing_requests": _ANSWERED_AT_ONCE,
        "graceful_shutdown_timeout_s": settings.drain_timeout_s + _LOG_WRITTEN_S,
        "ray_actor_options": {"num_cpus": 1},
    }
    scaled = {"min_replicas": 1, "max_replicas": 8, "target_ongoing_requests": _WANTED_AT_ONCE}
    models = {
        name: serve.deployment(Host, name=f"model-{name}", autoscaling_config=scaled, **options).bind(
            {"models": [name], "background": False}
        )
        for name in names
    }
    # Bodies are handed over whole. Larger uploads go to a `candor worker` or `candor serve` on the same state.
    limited = {"provider": "cpu", "max_upload_bytes": min(settings.max_upload_bytes, settings.max_body_bytes)}
    control = serve.deployment(Host, name="control", num_replicas=1, **options).bind(limited, [*models.values()])
    return serve.deployment(Ingress, name="ingress", autoscaling_config=scaled, **options).bind(control, models)


def _settings(changes: dict[str, Any]) -> Settings:
    """Return the settings of the environment with changes, and with what a replica cannot have."""
    settings: Settings = settings_of(changes)
    own: dict[str, Any] = {"workers": 1, "grpc_port": None, "uds": None}
    if "host" not in settings.model_fields_set:
        own["host"] = _ALL_ADDRESSES
    return settings.model_copy(update=own)
