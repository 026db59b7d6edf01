"""`candor serve`, and the settings that every local command reads."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from service.commands.output import reporting, run

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DatabaseUrl = Annotated[str | None, typer.Option(envvar="CANDOR_DATABASE_URL", help="State of the service.")]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (CANDOR_HOST).")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on (CANDOR_PORT).")] = None,
    uds: Annotated[Path | None, typer.Option(help="Unix socket in place of host and port (CANDOR_UDS).")] = None,
    grpc_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to listen on for gRPC (CANDOR_GRPC_PORT).")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate, PEM (CANDOR_TLS_CERT).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM (CANDOR_TLS_KEY).")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="Authorities of required client certificates, PEM (CANDOR_TLS_CLIENT_CA).")
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Without an API key, also answer requests through a proxy (CANDOR_INSECURE)."),
    ] = None,
    bundles: Annotated[str | None, typer.Option(help="Folder or URL of bundles (CANDOR_BUNDLES).")] = None,
    policies: Annotated[Path | None, typer.Option(help="Folder of policies (CANDOR_POLICIES).")] = None,
    workers: Annotated[str | None, typer.Option(help="Number of processes, or auto (CANDOR_WORKERS).")] = None,
    database_url: DatabaseUrl = None,
    background: Annotated[
        bool | None,
        typer.Option(
            help="Run recalibrations, monitors and retention here, or leave them to a worker (CANDOR_BACKGROUND)."
        ),
    ] = None,
) -> None:
    """Serve the bundles of a folder. Every setting is an environment variable: see docs/reference/settings.md."""
    exit_on_signals()
    gc.disable()  # the collector would take a tenth of the start to pass over modules, which stay

    from service.inference.providers import resolve_provider
    from service.workers.plan import workers_of

    given = {"host": host, "port": port, "uds": uds, "grpc_port": grpc_port, "bundles": bundles, "policies": policies}
    given |= {"database_url": database_url, "background": background, "insecure": insecure}
    given |= {"tls_cert": tls_cert, "tls_key": tls_key, "tls_client_ca": tls_client_ca}
    with reporting():
        settings = settings_of(given | {"workers": workers})
        _begin_log(settings)
        if (number := workers_of(settings, resolve_provider(settings.provider))) > 1:
            _supervise(settings, number)
        else:
            _serve_alone(settings)


def worker(
    host: Annotated[str | None, typer.Option(help="Address to listen on (CANDOR_HOST).")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on (CANDOR_PORT).")] = None,
    bundles: Annotated[str | None, typer.Option(help="Folder or URL of bundles (CANDOR_BUNDLES).")] = None,
    policies: Annotated[Path | None, typer.Option(help="Folder of policies (CANDOR_POLICIES).")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run recalibrations, monitors, retention and schema updates for services with CANDOR_BACKGROUND=false.

    Requires PostgreSQL. It has the settings and the API of a service, for probes and metrics.
    """
    exit_on_signals()
    gc.disable()

    from sqlalchemy import make_url

    from service.state.database import one_server_only

    given = {"host": host, "port": port, "bundles": bundles, "policies": policies, "database_url": database_url}
    with reporting():
        settings = settings_of(given).model_copy(
            update={"background": True, "workers": 1, "grpc_port": None, "models": None}
        )
        _begin_log(settings)
        if make_url(settings.database_url).get_backend_name() == "sqlite":
            raise one_server_only("CANDOR_DATABASE_URL")
        _serve_alone(settings)


def main() -> None:
    """Run `candor serve` or `candor worker`, without the imports of all other commands."""
    app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)
    app.command()(serve)
    app.command()(worker)
    run(app)


def _begin_log(settings: Any) -> None:
    import structlog

    from service.settings import unknown_variables
    from service.telemetry.logs import configure_logs

    configure_logs(settings.log_level, secrets_of(settings))
    for name, remedy in unknown_variables(os.environ).items():
        structlog.get_logger(__name__).warning("unknown setting", variable=name, remedy=remedy)


def _serve_alone(settings: Any) -> None:
    """Serve in this process."""
    from service.commands.process import Server, application_of, run
    from service.workers.listening import listeners_of
    from service.workers.plan import share_of

    settings = share_of(settings, 1)
    with listeners_of(settings) as listeners:
        application = application_of(settings)
        run(Server(settings, application), application, listeners)


def _supervise(settings: Any, workers: int) -> None:
    """Serve in several processes, which this one starts and watches."""
    from service.rest.connections import allow_open_files
    from service.state.database import lock_server
    from service.workers.listening import listeners_of, reserved
    from service.workers.plan import share_of
    from service.workers.supervisor import Supervisor

    share = share_of(settings, workers)
    allow_open_files()
    lock = lock_server(settings.state_url)
    with ExitStack() as stack:
        listeners = stack.enter_context(listeners_of(settings))
        _kept = [] if settings.grpc_port is None else reserved(settings.host, settings.grpc_port)
        gc.enable()
        status = asyncio.run(Supervisor(share, workers, listeners, lock).run())
    if status:
        raise typer.Exit(status)


def exit_on_signals() -> None:
    """Exit at SIGTERM until uvicorn or the supervisor takes that over, and do at a first SIGHUP what SIGTERM does."""

    def hang_up(*_: object) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # kernel and shell send one each, and a second SIGTERM is urgent
        signal.raise_signal(signal.SIGTERM)

    # As first process of a container this one would otherwise not hear of a stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, hang_up)


def secrets_of(settings: Any) -> list[str]:
    """Return the secrets among the settings, which a log must not show."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    found = set()
    for url in (settings.state_url, settings.direct_url, settings.read_url):
        with suppress(ArgumentError):  # said when the state is opened
            if url and (password := make_url(url).password):
                found.add(str(password))
    return sorted(found)


def settings_of(given: dict[str, Any]) -> Any:
    """Settings of the environment, and what was given on the command line; raises ConfigurationError."""
    from pydantic import ValidationError

    from bundle.references import without_user
    from service.errors import ConfigurationError
    from service.settings import Settings

    try:
        return Settings(**{key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        first, *others = error.errors()
        if not first["loc"]:  # of several settings together
            raise ConfigurationError(_said(first)) from error
        field = str(first["loc"][0])
        name = f"CANDOR_{field}".upper()
        # A setting of several types has an error for each.
        said = [_said(first), *(_said(other) for other in others if other["loc"][0] == field)]
        kind = Settings.model_fields[field]
        if kind.default is not None and type(None) in get_args(kind.annotation):
            said.append("none (no limit)")
        raise ConfigurationError(
            f"{name}: {'; or: '.join(said)}", where=name, found=without_user(str(first["input"]))
        ) from error


def _said(error: ErrorDetails) -> str:
    if error["type"] == "tuple_type":
        return f"expected a list in [ ], even of one item, in {'.'.join(map(str, error['loc'][1:]))}"
    return error["msg"].removeprefix("Value error, ")
