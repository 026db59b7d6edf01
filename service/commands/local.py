"""The verbs that work on this machine: `serve`, and the keys of a service's own state."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.markup import escape
from rich.table import Table

from service.commands.output import REFUSED, complaints, console, reporting

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
    from service.errors import ConfigurationError
    from service.logs import configure_logs

    given = {"host": host, "port": port, "bundles": bundles, "policies": policies, "database_url": database_url}
    with reporting():
        settings = settings_of(given)
        configure_logs()
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
                http="httptools",
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


def keys_create(
    name: Annotated[str, typer.Option(help="Whose key it is; goes into the audit log.")],
    scope: Annotated[list[str], typer.Option(help="predict, feedback, calibrate, approve or admin; may be repeated.")],
    file: Annotated[
        Path | None, typer.Option(help="Write the key to this new file (0600) instead of showing it.")
    ] = None,
    if_none: Annotated[bool, typer.Option("--if-none", help="Do nothing where there is a key already.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key. It is shown once; the state keeps only its hash."""
    with reporting(), _keys(database_url) as keys:
        if if_none and keys.any():
            complaints.print("There is a key already; nothing was made.")
            return
        if file is None:
            console.print(keys.create(name, scope)[1], highlight=False, soft_wrap=True)
            return
        with _new_secret_file(file) as secret_file:  # before the key: one that cannot be kept must not exist
            secret_file.write(f"{keys.create(name, scope)[1]}\n")
    complaints.print(f"The key is in {file}.")


def keys_list(database_url: DatabaseUrl = None) -> None:
    """List the keys; never their secrets."""
    from service.state.database import now_us
    from service.times import iso

    with reporting(), _keys(database_url) as keys:
        table = Table("prefix", "name", "scopes", "created", "state", box=None, pad_edge=False)
        for key in keys.list():
            expired = key.expires_at is not None and key.expires_at <= now_us()
            state = "revoked" if key.revoked_at else "expired" if expired else "valid"
            table.add_row(key.prefix, escape(key.name), ", ".join(key.scopes), iso(key.created_at)[:19], state)
        console.print(table)


def keys_revoke(
    prefix: Annotated[str, typer.Argument(help="From `candor keys list`.")], database_url: DatabaseUrl = None
) -> None:
    """Revoke a key; running services refuse it within one poll interval."""
    with reporting(), _keys(database_url) as keys:
        if not keys.revoke(prefix):
            complaints.print(f"[red]There is no valid key with the prefix {escape(prefix)}.[/red]")
            raise typer.Exit(REFUSED)
    console.print("revoked")


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


@contextmanager
def _new_secret_file(path: Path) -> Iterator[TextIO]:
    """Open a new file that only its owner reads; it is on disk when the block ends, or gone when that fails."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()
        raise


@contextmanager
def _keys(database_url: str | None) -> Iterator[Any]:
    from service.state.database import Database
    from service.state.keys import KeyStore

    database = Database.open(settings_of({"database_url": database_url}).database_url, beside_server=True)
    try:
        yield KeyStore(database)
    finally:
        database.close()
