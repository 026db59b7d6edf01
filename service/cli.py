"""The `candor` command: `serve` and `keys` work on this machine, every other verb is an HTTP call to CANDOR_URL.

Exit codes: 0 done · 1 the answer is no (a refit was refused) · 2 wrong usage or configuration · 3 no service answers ·
4 the service refused the request · 5 the service failed.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from service.client import DEFAULT_URL, ApiError, Client, UnreachableError
from service.errors import CandorError

REFUSED, USAGE, UNREACHABLE, CLIENT_ERROR, SERVER_ERROR = 1, 2, 3, 4, 5
_FIELDS = frozenset({"prediction_id", "reference", "label", "source", "labelled_at"})

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Serve calibrated predictions with certified decisions, and keep them honest.",
    epilog="Exit codes: 0 done, 1 the answer is no, 2 usage or configuration, 3 no service, 4 refused, 5 failed.",
)
keys_app = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys (on the service's own state).")
app.add_typer(keys_app, name="keys")
console = Console()
complaints = Console(stderr=True)

Url = Annotated[str, typer.Option(envvar="CANDOR_URL", help="Where the service is.")]
Key = Annotated[str | None, typer.Option("--api-key", envvar="CANDOR_API_KEY", help="API key.", show_envvar=True)]
Model = Annotated[str | None, typer.Option(help="Model; left out: the service's default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")]
DatabaseUrl = Annotated[str | None, typer.Option(envvar="CANDOR_DATABASE_URL", help="State of the service.")]
Reason = Annotated[str | None, typer.Option(help="Why; goes into the audit log.")]


class Mode(StrEnum):
    """What may come of a refit."""

    dry_run = "dry_run"
    propose = "propose"
    activate = "activate"


class Gate(StrEnum):
    """What a refit must show."""

    superior = "superior"
    non_inferior = "non_inferior"


def main() -> None:
    """Run the command line."""
    app()


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (CANDOR_HOST).")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to listen on (CANDOR_PORT).")] = None,
    bundles: Annotated[Path | None, typer.Option(help="Folder of bundles (CANDOR_BUNDLES).")] = None,
    policies: Annotated[Path | None, typer.Option(help="Folder of policies (CANDOR_POLICIES).")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the bundles of a folder. Every setting of docs/settings.md is an environment variable, CANDOR_<NAME>."""
    import uvicorn

    from service.app import create_app
    from service.errors import ConfigurationError
    from service.logs import configure_logs

    given = {"host": host, "port": port, "bundles": bundles, "policies": policies, "database_url": database_url}
    with _reporting():
        settings = _settings(given)
        configure_logs()
        application = create_app(settings)
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
                timeout_graceful_shutdown=round(settings.drain_timeout_s),
            )
        except SystemExit:  # uvicorn's way to say that it could not bind the address
            raise ConfigurationError(
                f"The service could not listen on {settings.host}:{settings.port}; the log above says why.",
                where="CANDOR_PORT",
                remedy="Choose another port with --port, or stop what uses this one.",
            ) from None


@app.command()
def predict(
    files: Annotated[
        list[Path], typer.Argument(help="PNG, JPEG, WebP, .npy or JSON files.", exists=True, dir_okay=False)
    ],
    policy: Annotated[str | None, typer.Option(help="Policy that decides.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Show this many probabilities.")] = 3,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Ask for calibrated probabilities and a decision."""
    with _reporting(), Client(url, api_key=api_key, model=model) as client:
        answers = [client.predict_file(path, policy=policy, top=None if as_json else top) for path in files]
    if as_json:
        _print_json(answers[0] if len(answers) == 1 else answers)
        return
    table = Table(
        "file", "label", "confidence", "decision", "next best", _whole("prediction id"), box=None, pad_edge=False
    )
    for path, answer in zip(files, answers, strict=True):
        for prediction in answer["predictions"]:
            others = [(label, p) for label, p in prediction["probabilities"].items() if label != prediction["label"]]
            table.add_row(
                escape(path.name),
                escape(prediction["label"]),
                f"{prediction['confidence']:.4f}",
                escape(prediction["decision"]["action"]) if prediction["decision"] else "—",
                escape(", ".join(f"{label} {p:.4f}" for label, p in others[: top - 1])) or "—",
                prediction["prediction_id"],
            )
    console.print(table)
    answer = answers[-1]
    console.print(f"[dim]{answer['model']} {answer['revision']}[/dim]")
    for line in _certificates(answer["policy"]):
        console.print(f"[dim]{escape(line)}[/dim]")


@app.command()
def feedback(
    prediction_id: Annotated[str | None, typer.Argument(help="Id from the prediction's answer.")] = None,
    label: Annotated[str | None, typer.Argument(help="The true label.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="CSV with a header, or NDJSON: prediction_id or reference, label."
        ),
    ] = None,
    source: Annotated[str, typer.Option(help="Who says so.")] = "client",
    idempotency_key: Annotated[str | None, typer.Option(help="Makes a repeated call harmless.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Say what was true: one label on the command line, or many in a file."""
    if (file is None) == (prediction_id is None or label is None):
        raise typer.BadParameter("give PREDICTION_ID and LABEL, or --file")
    with _reporting(), Client(url, api_key=api_key, model=model) as client:
        items = _items(file) if file else [{"prediction_id": prediction_id, "label": label}]
        answer = client.feedback([{"source": source, **item} for item in items], idempotency_key=idempotency_key)
    if as_json:
        _print_json(answer)
        return
    counts = ", ".join(f"{answer[key]} {key}" for key in ("stored", "pending", "duplicates", "conflicts"))
    console.print(f"{counts} of {len(answer['items'])}")


@app.command()
def recalibrate(
    mode: Annotated[Mode, typer.Option(help="What may come of it.")] = Mode.dry_run,
    calibrator: Annotated[str | None, typer.Option(help="Method; left out: the one in service.")] = None,
    gate: Annotated[Gate, typer.Option(help="What must be shown.")] = Gate.superior,
    since: Annotated[datetime | None, typer.Option(help="Predictions made at or after this time (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Predictions made before this time (UTC).")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Refit the calibrator on labelled feedback and test it against the one in service. Exits 1 when it is refused."""
    with _reporting(), Client(url, api_key=api_key, model=model) as client, console.status("refitting …"):
        answer = client.recalibrate(
            mode=mode.value, calibrator=calibrator, gate=gate.value, since=_utc(since), until=_utc(until)
        )
    if as_json:
        _print_json(answer)
    else:
        print_recalibration(answer, console)
    if not answer["gate"]["passed"]:
        raise typer.Exit(REFUSED)


@app.command()
def revisions(
    revision: Annotated[str | None, typer.Argument(help="Show this one whole.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """List the revisions of a model, newest first, or show one whole."""
    with _reporting(), Client(url, api_key=api_key, model=model) as client:
        answer = client.revision(revision) if revision else client.revisions()
    if as_json or revision:
        _print_json(answer)
        return
    table = Table(
        _whole("revision"),
        _whole("state"),
        "cause",
        "gate",
        "by",
        _whole("created"),
        "summary",
        box=None,
        pad_edge=False,
    )
    for item in answer["items"]:
        row = [item[key] for key in ("id", "state", "cause", "gate", "by")] + [item["created_at"][:19], item["summary"]]
        table.add_row(*(escape(cell or "—") for cell in row), style="bold" if item["state"] == "active" else None)
    console.print(table)
    console.print(f"[dim]epoch {answer['epoch']}[/dim]")


@app.command()
def activate(
    revision: Annotated[str, typer.Argument(help="Revision to put into service.")],
    reason: Reason = None,
    epoch: Annotated[int | None, typer.Option(help="Epoch that you decided on; left out: the present one.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Put a revision into service."""
    _move(url, api_key, model, epoch, as_json, lambda client, at: client.activate(revision, epoch=at, reason=reason))


@app.command()
def rollback(
    reason: Reason = None,
    epoch: Annotated[int | None, typer.Option(help="Epoch that you decided on; left out: the present one.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Put the revision before back into service."""
    _move(url, api_key, model, epoch, as_json, lambda client, at: client.rollback(epoch=at, reason=reason))


@keys_app.command("create")
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
    with _reporting(), _keys(database_url) as keys:
        if if_none and keys.any():
            complaints.print("There is a key already; nothing was made.")
            return
        if file is not None and file.exists():
            raise typer.BadParameter(f"{file} exists already")
        _, secret = keys.create(name, scope)
        if file is None:
            console.print(secret, highlight=False, soft_wrap=True)
        else:
            file.touch(mode=0o600, exist_ok=False)
            file.write_text(f"{secret}\n", encoding="utf-8")
            complaints.print(f"The key is in {file}.")


@keys_app.command("list")
def keys_list(database_url: DatabaseUrl = None) -> None:
    """List the keys; never their secrets."""
    from service.times import iso

    with _reporting(), _keys(database_url) as keys:
        table = Table("prefix", "name", "scopes", "created", "state", box=None, pad_edge=False)
        for key in keys.list():
            state = "revoked" if key.revoked_at else "valid"
            table.add_row(key.prefix, escape(key.name), ", ".join(key.scopes), iso(key.created_at)[:19], state)
        console.print(table)


@keys_app.command("revoke")
def keys_revoke(
    prefix: Annotated[str, typer.Argument(help="From `candor keys list`.")], database_url: DatabaseUrl = None
) -> None:
    """Revoke a key; running services refuse it within one poll interval."""
    with _reporting(), _keys(database_url) as keys:
        if not keys.revoke(prefix):
            complaints.print(f"[red]There is no valid key with the prefix {escape(prefix)}.[/red]")
            raise typer.Exit(REFUSED)
    console.print("revoked")


def print_recalibration(answer: dict[str, Any], out: Console) -> None:
    """Print what a refit found, for people."""
    gate, metrics, rows = answer["gate"], answer["metrics"], answer["rows"]
    colour = "green" if gate["passed"] else "yellow"
    out.print(f"[bold {colour}]{escape(answer['summary'])}[/bold {colour}]")
    table = Table("on the gate rows", f"{answer['base']} in service", "refitted", "", box=None, pad_edge=False)
    for key, name in (("nll", "log loss (nats)"), ("brier", "Brier score")):
        low, high = metrics[key]["interval"]
        table.add_row(
            name,
            f"{metrics[key]['before']:.4f}",
            f"{metrics[key]['after']:.4f}",
            f"difference, 95 % interval: {low:+.4f} to {high:+.4f}",
        )
    ece = metrics["ece"]
    null = "a calibrated model shows {mean:.3f} (95 % quantile {q95:.3f})".format(**ece["null"])
    table.add_row("ECE, 15 bins", f"{ece['before']:.4f}", f"{ece['after']:.4f}", null)
    out.print(table)
    out.print(
        f"gate: {gate['mode']}, attempt {gate['attempt']} at alpha {gate['alpha']:.4g}; log-loss difference "
        f"{gate['difference']:+.4f}, upper bound {gate['upper']:+.4f}\n"
        f"rows: {rows['fit']} fit, {rows['certify']} certify, {rows['gate']} gate, {rows['pending']} pending"
    )
    for policy, change in answer["decisions"]["policies"].items():
        counts = ", ".join(f"{name} {n['before']} → {n['after']}" for name, n in change["actions"].items())
        out.print(f"policy {policy}: {change['flipped']} of {rows['gate']} decisions change ({counts})")
    if answer["revision"]:
        out.print(f"revision {answer['revision']}: {answer['state']}")


def _whole(name: str) -> Column:
    """Return a column whose cells are copied by hand: never cut off."""
    return Column(name, no_wrap=True, overflow="ignore")


def _certificates(policy: dict[str, Any] | None) -> Iterator[str]:
    if policy is None:
        yield "no policy"
        return
    yield f"policy {policy['id']}"
    for action, certificate in policy["certified"].items():
        if certificate["valid"]:
            yield (
                f"{action}: {certificate['metric']} ≥ {certificate['at_least']:g}, certified at delta "
                f"{certificate['delta']:g} on {certificate['n']} {certificate['basis']} rows"
            )
        else:
            yield f"{action}: not certified: {certificate['reason']}"


def _move(
    url: str,
    api_key: str | None,
    model: str | None,
    epoch: int | None,
    as_json: bool,
    move: Callable[[Client, int], dict[str, Any]],
) -> None:
    with _reporting(), Client(url, api_key=api_key, model=model) as client:
        answer = move(client, epoch if epoch is not None else client.revisions(limit=1)["epoch"])
    if as_json:
        _print_json(answer)
    else:
        console.print(f"{answer['active']} is active (epoch {answer['epoch']})")


def _utc(time: datetime | None) -> str | None:
    return None if time is None else f"{time.isoformat()}Z"


def _items(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".csv":
            rows = csv.DictReader(text.splitlines(), restkey="more columns than the header names")
            items = [{key: value for key, value in row.items() if value} for row in rows]
        else:
            items = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise typer.BadParameter(f"{path}: {error}") from error
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict) or not item.keys() <= _FIELDS:
            raise typer.BadParameter(f"{path}, item {number}: found {item}, expected {', '.join(sorted(_FIELDS))}")
    if not items:
        raise typer.BadParameter(f"{path}: there are no items in it")
    return items


def _print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _settings(given: dict[str, Any]) -> Any:
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
def _keys(database_url: str | None) -> Iterator[Any]:
    from service.state.database import Database
    from service.state.keys import KeyStore

    database = Database.open(_settings({"database_url": database_url}).database_url, beside_server=True)
    try:
        yield KeyStore(database)
    finally:
        database.close()


@contextmanager
def _reporting() -> Iterator[None]:
    """Turn errors into a few plain lines on standard error and an exit code that means something."""
    try:
        yield
    except UnreachableError as error:
        complaints.print(
            f"[red]{escape(str(error))}[/red]\nStart one with [bold]make serve[/bold], or set CANDOR_URL.",
            soft_wrap=True,
        )
        raise typer.Exit(UNREACHABLE) from None
    except ApiError as error:
        _complain(error.problem.get("title"), str(error), error.problem)
        raise typer.Exit(SERVER_ERROR if error.status >= 500 else CLIENT_ERROR) from None
    except CandorError as error:
        _complain(
            error.title, str(error), {key: getattr(error, key) for key in ("where", "found", "expected", "remedy")}
        )
        raise typer.Exit(USAGE) from None
    except ValueError as error:
        complaints.print(f"[red]{escape(str(error))}[/red]", soft_wrap=True)
        raise typer.Exit(USAGE) from None


def _complain(title: str | None, message: str, details: dict[str, Any]) -> None:
    complaints.print(f"[bold red]{escape(title or 'Error')}[/bold red]: {escape(message)}", soft_wrap=True)
    for key in ("where", "found", "expected", "remedy"):
        if details.get(key) is not None:
            complaints.print(f"  [dim]{key}:[/dim] {escape(str(details[key]))}", soft_wrap=True)


if __name__ == "__main__":
    main()
