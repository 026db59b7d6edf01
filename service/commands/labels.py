"""`candor labels`: find labels by who sent them and when, and take them back. Works on the state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.commands.local import DatabaseUrl, settings_of
from service.commands.output import console, counted, print_json, reporting
from service.commands.remote import AsJson

if TYPE_CHECKING:
    from service.state.database import Database

app = typer.Typer(no_args_is_help=True, help="Find labels by key, source and time received, and take them back.")

Model = Annotated[str, typer.Option(help="The model.")]
By = Annotated[str | None, typer.Option(help="Only labels sent by keys of this name; a later key may have it too.")]
Sender = Annotated[str | None, typer.Option("--key", help="Only labels sent by the key with this prefix.")]
Source = Annotated[str | None, typer.Option(help="Only labels of this source.")]
Since = Annotated[str | None, typer.Option(help="Only labels received at this time or later (ISO 8601, UTC).")]
Until = Annotated[str | None, typer.Option(help="Only labels received before this time (ISO 8601, UTC).")]


@app.command("list")
def list_labels(
    model: Model,
    key: Sender = None,
    by: By = None,
    source: Source = None,
    since: Since = None,
    until: Until = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Print labels as JSON lines, in the order in which they came."""
    from service.state.retraction import find
    from service.times import iso

    labels = _labels(model, key, by, source, since, until)
    with reporting(), _state(model, database_url) as database:
        for row in find(database, labels):
            named = {"reference" if row.by_reference else "prediction_id": row.target}
            times = {"labelled_at": row.labelled_at and iso(row.labelled_at), "received_at": iso(row.received_at)}
            sender = {"by": row.by, "key": row.by_key}
            typer.echo(json.dumps({**named, "label": row.label, "source": row.source, **sender, **times}))


@app.command()
def retract(
    model: Model,
    reason: Annotated[str, typer.Option(help="Reason, kept in the audit log.")],
    key: Sender = None,
    by: By = None,
    source: Source = None,
    since: Since = None,
    until: Until = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Delete labels, so that earlier labels of the same predictions count again. Save the output of `list` first.

    The service may be running. Cases that the labels ended stay done. Revisions and monitors that have read them do not
    change: roll back first.
    """
    from service.state.retraction import retract as take_back

    labels = _labels(model, key, by, source, since, until)
    if not labels.document():
        raise typer.BadParameter("give at least one of --key, --by, --source, --since, --until")
    with reporting(), _state(model, database_url) as database:
        number = take_back(database, labels, by="local", reason=reason)
    if as_json:
        print_json({"labels": number})
    else:
        console.print(f"retracted {counted(number, 'label')} of {model}")


def _labels(
    model: str, key: str | None, by: str | None, source: str | None, since: str | None, until: str | None
) -> Any:
    from service.state.retraction import Labels

    since_us, until_us = _time(since, "--since"), _time(until, "--until")
    return Labels(model, by=by, key=key, source=source, since=since_us, until=until_us)


def _time(text: str | None, option: str) -> int | None:
    from datetime import UTC, datetime

    from service.times import microseconds

    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {text!r} is not a time such as 2026-11-01T12:00:00Z") from error
    return microseconds(at if at.tzinfo is not None else at.replace(tzinfo=UTC))


@contextmanager
def _state(model: str, database_url: str | None) -> Iterator[Database]:
    from service.errors import UnknownModelError
    from service.state.database import Database
    from service.state.revisions import RevisionStore

    url = settings_of({"database_url": database_url}).state_url
    database = Database.open(url, beside_server=True, existing=True)
    try:
        if model not in (known := RevisionStore(database).pointers()):  # else a misspelled name has no labels
            raise UnknownModelError(
                f"The state has no model {model!r}.", where="--model", found=model, expected=sorted(known)
            )
        yield database
    finally:
        database.close()
