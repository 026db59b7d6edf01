"""`candor serve`, and the settings that every verb on this machine reads."""

from __future__ import annotations

import gc
import math
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.commands.output import reporting

_COLLECT = 10_000, 20, 20  # the garbage collector's thresholds: requests leave next to no cycles
_SWITCH_S = 0.0002  # a thread that is busy, with refusals say, keeps Python's lock from a batch for as long each time

DatabaseUrl = Annotated[str | None, typer.Option(envvar="CANDOR_DATABASE_URL", help="State of the service.")]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (CANDOR_HOST).")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on (CANDOR_PORT).")] = None,
    bundles: Annotated[Path | None, typer.Option(help="Folder of bundles (CANDOR_BUNDLES).")] = None,
    policies: Annotated[Path | None, typer.Option(help="Folder of policies (CANDOR_POLICIES).")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the bundles of a folder. Every setting of docs/settings.md is an environment variable, CANDOR_<NAME>."""
    # Until uvicorn listens to signals; as first process of a container this one would otherwise not hear of a stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    import uvicorn

    from service.app import create_app
    from service.connections import allow_open_files, protocol
    from service.errors import ConfigurationError
    from service.logs import configure_logs
    from service.memory import give_back_large_blocks

    given = {"host": host, "port": port, "bundles": bundles, "policies": policies, "database_url": database_url}
    with reporting():
        settings = settings_of(given)
        configure_logs(settings.log_level, secrets_of(settings))
        allow_open_files()
        give_back_large_blocks()
        application = create_app(settings)
        # What is here now stays: passing over all of it again would stop the service for 0.1 s, several times a second.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT)
        sys.setswitchinterval(_SWITCH_S)
        try:
            uvicorn.run(
                application,
                host=settings.host,
                port=settings.port,
                loop="uvloop",
                http=protocol(settings),
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,  # nothing asks for a client's address
                timeout_graceful_shutdown=math.ceil(settings.drain_timeout_s),
            )
        except SystemExit as stop:  # uvicorn's way to say that it could not bind the address
            if not stop.code:
                raise
            raise ConfigurationError(
                f"The service could not listen on {settings.host}:{settings.port}; the log above says why.",
                where="CANDOR_PORT",
                remedy="Choose another port with --port, or stop what uses this one.",
            ) from None


def secrets_of(settings: Any) -> list[str]:
    """Return what stands in the settings and must not stand in a log."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        password = make_url(settings.state_url).password
    except ArgumentError:  # said when the state is opened
        return []
    return [str(password)] if password else []


def settings_of(given: dict[str, Any]) -> Any:
    """Settings of the environment, and what was given on the command line; raises ConfigurationError."""
    from pydantic import ValidationError

    from service.errors import ConfigurationError
    from service.settings import Settings

    try:
        return Settings(**{key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigurationError(
            f"CANDOR_{name}: {first['msg']}", where=f"CANDOR_{name}", found=str(first["input"])
        ) from error
