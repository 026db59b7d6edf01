"""`candor audit`: read the audit log, sign its head, and verify its hash chain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from service.commands.local import DatabaseUrl, settings_of
from service.commands.output import REFUSED, complaints, console, print_json, reporting, whole_column
from service.commands.remote import AsJson, Key, Model, Url

app = typer.Typer(help="List what was done to a model; verify the log.")


@app.callback(invoke_without_command=True)
def audit(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 50,
    before: Annotated[int | None, typer.Option(help="Only entries before this one.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """List what was done to a model, by whom and when, newest first."""
    if context.invoked_subcommand is not None:
        return
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        page = client.audit(limit=limit, before=before)
    if as_json:
        print_json(page.document)
        return
    table = Table("id", whole_column("at"), "by", "action", whole_column("subject"), "reason", box=None, pad_edge=False)
    for entry in page.items:
        cells = (str(entry.id), entry.at[:19], entry.by, entry.action, entry.subject, entry.detail.get("reason"))
        table.add_row(*(escape(cell or "—") for cell in cells))
    console.print(table)


@app.command()
def verify(
    heads: Annotated[
        list[Path] | None,
        typer.Option(help="File with exported heads: JSON lines, or lines of syslog; repeatable."),
    ] = None,
    public_key: Annotated[Path | None, typer.Option(help="Public key (PEM) that the heads are signed with.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 for entries that are dated back, too.")
    ] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Verify the hash chain of the audit log in the state, and name the first broken link (exit code 1).

    Also compares the prediction ids of each key with what the log sealed.

    An entry that is dated back by more than an hour is a warning, with --strict a failure. A clock that was set back
    also causes one. Without exported heads, a log that was cut off at its end or rewritten looks intact.
    """
    from service.errors import ConfigurationError
    from service.state import answered_ids, audit_chain
    from service.state.audit_heads import read_heads

    with reporting():
        if heads and public_key is None:
            raise ConfigurationError(
                "Exported heads require the public key of their signatures.",
                where="--public-key",
                expected="a file",
                remedy="openssl pkey -in audit.pem -pubout -out audit.pub.pem, where the key is",
            )
        known = [one for file in heads or () if public_key is not None for one in read_heads(file, public_key)]
        with _state(database_url) as database, database.connect() as connection:
            whole, broken, doubts = audit_chain.verify(connection, known)
            ids = None if broken else answered_ids.verify(connection)
    if as_json:
        found = {"links": whole.position, "head": whole.head.hex(), "entry": whole.entry}
        print_json({**found, "heads": len(known), "broken": broken or ids, "doubts": doubts})
    elif ids is not None:
        complaints.print(f"[red]{escape(ids)}[/red]", soft_wrap=True)
        complaints.print(f"The chain is whole: {whole.position} links.")
    elif broken is None:
        agrees = f", and has all {len(known)} exported heads" if known else ""
        console.print(f"The chain is whole: {whole.position} links{agrees}. Its head is {whole.head.hex()}.")
        if not known:
            complaints.print("No exported head was compared: a cut-off end would not show. See --heads.")
    else:
        complaints.print(f"[red]{escape(broken)}[/red]", soft_wrap=True)
        complaints.print(f"The {whole.position} links before it are whole.")
    if not as_json:
        for doubt in doubts:
            complaints.print(f"[yellow]{escape(doubt)}[/yellow]", soft_wrap=True)
    if broken is not None or ids is not None or (strict and doubts):
        raise typer.Exit(REFUSED)


@app.command()
def sender(
    prediction: Annotated[str, typer.Argument(help="Prediction id.")],
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Say which key a prediction was answered to, and whether the audit log seals it (exit code 1 if not).

    Known within a minute of the prediction, until retention deletes it. Requests without a key have no sender.
    """
    from service.errors import InputError
    from service.ids import is_prediction_id
    from service.state import answered_ids
    from service.times import iso

    with reporting():
        if not is_prediction_id(prediction):
            raise InputError("Not a prediction id.", found=prediction, expected="26 characters, such as 01HF7YAT00…")
        with _state(database_url) as database, database.connect() as connection:
            found = answered_ids.find(connection, prediction)
    if as_json:
        print_json(None if found is None else found._asdict() | {"at": iso(found.at)})
    elif found is None:
        complaints.print(
            "No key is known to have sent this prediction. Keys are known within a minute of the prediction."
        )
    else:
        seal = f"sealed by entry {found.entry} of {iso(found.at)}"
        seal = seal if found.whole else f"[red]entry {found.entry} seals other ids[/red]"
        console.print(f"{escape(found.model)}: key {escape(found.key)} ({escape(found.name)}), {seal}.", soft_wrap=True)
    if found is None or not found.whole:
        raise typer.Exit(REFUSED)


@app.command()
def head(database_url: DatabaseUrl = None) -> None:
    """Print the head of the chain, signed with the key in CANDOR_AUDIT_KEY_FILE, to be kept elsewhere."""
    from service.state import audit_chain
    from service.state.audit_heads import key_of, signed

    with reporting():
        key = key_of(settings_of({}).audit_key_file)
        with _state(database_url) as database, database.connect() as connection:
            document = signed(audit_chain.end_of(connection), key)
    typer.echo(document.model_dump_json())


def _state(database_url: str | None) -> Any:
    from contextlib import closing

    from service.state.database import Database

    return closing(Database.open(settings_of({"database_url": database_url}).state_url, readonly=True))
