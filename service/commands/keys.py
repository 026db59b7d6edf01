"""`candor keys`: the API keys of a service's own state."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.markup import escape
from rich.table import Table

from service.commands.local import DatabaseUrl, settings_of
from service.commands.output import REFUSED, complaints, console, print_json, reporting, whole_column
from service.times import duration_us, iso

if TYPE_CHECKING:
    from service.state.keys import ApiKey, KeyStore

app = typer.Typer(no_args_is_help=True, help="Create, list, replace and revoke API keys in the service's state.")

NewFile = Annotated[
    Path | None, typer.Option(help="Write the key to this new file (mode 0600) instead of printing it.")
]
_SCOPES = "predict, feedback, review, read, calibrate, approve, metrics or admin; repeatable."
Models = Annotated[list[str] | None, typer.Option("--model", help="Only this model; repeatable. Default: all.")]
Rate = Annotated[float | None, typer.Option(help="Maximum requests per second; default: CANDOR_KEY_REQUESTS_PER_S.")]
RowsRate = Annotated[
    float | None, typer.Option(help="Maximum predicted rows per second; default: CANDOR_KEY_ROWS_PER_S.")
]
Source = Annotated[str | None, typer.Option(help="Only source of the labels that it sends, such as reviewer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON, for scripts.")]


def _stretch(text: str) -> int:
    try:
        return duration_us(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _lifetime(text: str) -> int:
    if (lifetime := _stretch(text)) == 0:
        raise typer.BadParameter(f"{text!r}: the key would have expired already. Expected: a lifetime such as 90d")
    return lifetime


@app.command()
def create(
    name: Annotated[str, typer.Option(help="Name of the key, shown in the audit log.")],
    scope: Annotated[list[str], typer.Option(help=_SCOPES)],
    expires_in: Annotated[
        int | None,
        typer.Option(parser=_lifetime, metavar="TIME", help="Lifetime, such as 90d or 12h; default: unlimited."),
    ] = None,
    rate: Rate = None,
    rows_rate: RowsRate = None,
    model: Models = None,
    source: Source = None,
    file: NewFile = None,
    if_none: Annotated[bool, typer.Option("--if-none", help="Do nothing if a key exists.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a key. It is shown once; the state keeps only its hash."""
    from service.state.database import now_us

    with reporting(), _keys(database_url) as keys:
        if if_none and keys.any():
            complaints.print("A key exists already; nothing was created.")
            return
        expires_at = None if expires_in is None else now_us() + expires_in
        with _kept(file) as keep:
            made = keys.create(
                name,
                scope,
                expires_at,
                requests_per_s=rate,
                rows_per_s=rows_rate,
                models=model or None,
                source=source,
            )
            keep(*made, as_json)
        if not any("admin" in key.scopes for key in keys.list() if key.valid_at(now_us())):
            complaints.print(
                "[yellow]No key has the scope admin.[/yellow] From now on every request requires a key, and nobody "
                "can do what this key does not allow. Create another: candor keys create --name ops --scope admin"
            )


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="File with the key, such as that of a mounted secret.")],
    name: Annotated[str, typer.Option(help="Name of the key, shown in the audit log.")],
    scope: Annotated[list[str], typer.Option(help=_SCOPES)],
    rate: Rate = None,
    rows_rate: RowsRate = None,
    model: Models = None,
    source: Source = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Add a key that was made elsewhere: `cnd_`, 12 hexadecimal digits, `_`, at least 40 random characters.

    Does nothing if the key was added before. Exits 1 if it was revoked or has expired since, and 2 if its scopes,
    models, rates or source differ: they never change.
    """
    from service.errors import ConfigurationError
    from service.state.database import now_us
    from service.state.password import read_secret

    with reporting(), _keys(database_url) as keys:
        text = read_secret(file, "key", where="FILE").strip()
        if (there := keys.find(text)) is not None:
            if not there.valid_at(now_us()):
                state = "is revoked" if there.revoked_at else "has expired"
                complaints.print(f"The key {there.prefix} in {escape(str(file))} {state}.", soft_wrap=True)
                raise typer.Exit(REFUSED)
            _check_same(there, file, scope, model, source=source, rate=rate, rows_rate=rows_rate)
            complaints.print(f"The key in {escape(str(file))} exists already.", soft_wrap=True)
            return
        try:
            key, _ = keys.create(
                name, scope, requests_per_s=rate, rows_per_s=rows_rate, models=model or None, source=source, text=text
            )
        except ConfigurationError as error:
            if error.where == "key":
                error.place = str(file)
            raise
        console.print(f"added {key.prefix}")


@app.command()
def rotate(
    prefix: Annotated[str, typer.Argument(help="Prefix of the key to replace, from `candor keys list`.")],
    grace: Annotated[
        int, typer.Option(parser=_stretch, metavar="TIME", help="How long the old key stays valid, such as 24h or 0s.")
    ] = "24h",  # type: ignore[assignment]  # typer parses the default as it does what is given
    file: NewFile = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a key that replaces another: same name, scopes, limits, lifetime. The old key stays valid for a while."""
    with reporting(), _keys(database_url) as keys, _kept(file) as keep:
        keep(*keys.rotate(prefix, grace_us=grace), as_json)


@app.command("list")
def list_keys(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """List the keys, without their secrets."""
    with reporting(), _keys(database_url) as keys:
        documents = [_document(key) for key in keys.list()]
    if as_json:
        print_json(documents)
        return
    table = Table(
        *(whole_column("prefix"), "name", "scopes", "models", "source", "created", "expires", "rates", "state"),
        box=None,
        pad_edge=False,
    )
    for key in documents:
        rates = [f"{key[f'{unit}_per_s']:g} {unit}/s" for unit in ("requests", "rows") if key[f"{unit}_per_s"]]
        times = (key["created_at"][:19], (key["expires_at"] or "never")[:19])
        limits = escape(", ".join(key["models"] or ["all"])), escape(key["source"] or "any")
        table.add_row(
            key["prefix"],
            escape(key["name"]),
            ", ".join(key["scopes"]),
            *limits,
            *times,
            ", ".join(rates) or "—",
            key["state"],
        )
    console.print(table)


@app.command()
def revoke(
    prefix: Annotated[str, typer.Argument(help="From `candor keys list`.")], database_url: DatabaseUrl = None
) -> None:
    """Revoke a key; running services refuse it within one poll interval."""
    with reporting(), _keys(database_url) as keys:
        if not keys.revoke(prefix):
            complaints.print(f"[red]No valid key has the prefix {escape(prefix)}.[/red]")
            raise typer.Exit(REFUSED)
    console.print("revoked")


@app.command("end-sessions")
def end_sessions(database_url: DatabaseUrl = None) -> None:
    """End all sessions of the dashboard; running services refuse them within one poll interval."""
    with reporting(), _keys(database_url) as keys:
        console.print(f"ended {keys.end_sessions()}")


def _document(key: ApiKey) -> dict[str, Any]:
    from service.state.database import now_us

    return {
        "prefix": key.prefix,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "created_at": iso(key.created_at),
        "expires_at": None if key.expires_at is None else iso(key.expires_at),
        "requests_per_s": key.requests_per_s,
        "rows_per_s": key.rows_per_s,
        "models": None if key.models is None else sorted(key.models),
        "source": key.source,
        "state": "revoked" if key.revoked_at else "valid" if key.valid_at(now_us()) else "expired",
    }


def _check_same(
    key: ApiKey, file: Path, scopes: list[str], models: list[str] | None, **limits: str | float | None
) -> None:
    from service.errors import ConfigurationError

    asked = {"scopes": sorted(set(scopes)), "models": sorted(set(models or ())), **limits}
    has = {
        "scopes": sorted(key.scopes),
        "models": sorted(key.models or ()),
        "source": key.source,
        "rate": key.requests_per_s,
        "rows_rate": key.rows_per_s,
    }
    if other := [name for name in asked if asked[name] != has[name]]:
        raise ConfigurationError(
            f"The key {key.prefix} exists already, with other limits.",
            where=str(file),
            found="; ".join(f"{name}: {_said(has[name])}" for name in other),
            expected="; ".join(f"{name}: {_said(asked[name])}" for name in other),
            remedy="What a key may do never changes. Add another key, and revoke this one: "
            f"candor keys revoke {key.prefix}",
        )


def _said(limit: object) -> str:
    return (", ".join(limit) if isinstance(limit, list) else str(limit or "")) or "any"


@contextmanager
def _kept(file: Path | None) -> Iterator[Any]:
    """Yield a function `keep(key, text, as_json)` that prints a new key, or writes it to a new file.

    The file is opened before the key is created: a key that cannot be kept must not exist.
    """
    if file is None:

        def show(key: ApiKey, text: str, as_json: bool) -> None:
            if as_json:
                print_json({**_document(key), "key": text})
            else:
                console.print(text, highlight=False, soft_wrap=True)

        yield show
        return
    with _new_secret_file(file) as secret_file:

        def write(key: ApiKey, text: str, as_json: bool) -> None:
            secret_file.write(f"{text}\n")
            if as_json:
                print_json({**_document(key), "file": str(file)})

        yield write
    complaints.print(f"The key is in {file}.")


@contextmanager
def _new_secret_file(path: Path) -> Iterator[TextIO]:
    """Open a new file that only its owner can read; it is on disk when the block ends, or removed on failure."""
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
def _keys(database_url: str | None) -> Iterator[KeyStore]:
    from sqlalchemy import make_url

    from service.state.database import Database
    from service.state.keys import KeyStore

    url = settings_of({"database_url": database_url}).state_url
    file = make_url(url).database if url.startswith("sqlite") else None
    if file and not Path(file).exists():
        if not sys.stdin.isatty():
            complaints.print(f"Creating a new state at {escape(file)}.", soft_wrap=True)
        else:
            complaints.print(f"No state exists at {escape(file)} yet.", soft_wrap=True)
            typer.confirm("Create a new one? A service elsewhere would not see its keys.", abort=True, err=True)
    database = Database.open(url, beside_server=True)
    try:
        yield KeyStore(database)
    finally:
        database.close()
