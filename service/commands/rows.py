"""The commands that delete stored rows: `erase` asks the service, `prune` works on its state."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any

import typer

from candor import DEFAULT_URL, Client
from service.commands.local import DatabaseUrl, settings_of
from service.commands.output import console, counted, print_json, reporting
from service.commands.remote import AsJson, Key, Model, Url

_AGE = re.compile(r"([1-9][0-9]{0,4})([dh])")
_HOURS = {"d": 24, "h": 1}


def erase(
    group: Annotated[str | None, typer.Option(help="Erase rows of this group.")] = None,
    reference: Annotated[str | None, typer.Option(help="Erase rows with this reference.")] = None,
    prediction_id: Annotated[str | None, typer.Option(help="Erase this prediction.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Delete everything that is stored about one subject: predictions, inputs, labels. It cannot be undone."""
    if sum(name is not None for name in (group, reference, prediction_id)) != 1:
        raise typer.BadParameter("give one of --group, --reference, --prediction-id")
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        answer = client.erase(group=group, reference=reference, prediction_id=prediction_id)
    if as_json:
        print_json(answer.document)
        return
    console.print(f"erased {_counts(answer)} of {answer.model}")
    for held_by in answer.labelled_sets:
        console.print(f"{held_by} has rows of it too: candor labelled-sets delete {held_by}")


def prune(
    older_than: Annotated[str, typer.Option(help="Age, such as 30d or 12h.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete predictions older than an age, with their inputs and labels, and old labels without a prediction."""
    from service.state.database import Database, now_us
    from service.state.retention import LOCK, count_older
    from service.state.retention import prune as delete_older
    from service.times import DAY_US

    match = _AGE.fullmatch(older_than)
    if match is None:
        raise typer.BadParameter("--older-than takes a number of days or hours, such as 30d or 12h")
    before_us = now_us() - int(match[1]) * _HOURS[match[2]] * DAY_US // 24
    with reporting():
        url = settings_of({"database_url": database_url}).state_url
        database = Database.open(url, beside_server=True, existing=True)
        try:
            if dry_run:
                found = count_older(database, before_us)
            else:
                with database.locked(LOCK):
                    found = delete_older(database, before_us, by="local")
                database.scrub()
        finally:
            database.close()
    if as_json:
        print_json({"dry_run": dry_run, **asdict(found)})
        return
    console.print(f"{'would delete' if dry_run else 'deleted'} {_counts(found)}")


def _counts(found: Any) -> str:
    """Return how many rows of each kind were deleted."""
    kinds = ("prediction", "input", "label", "receipt", "case")
    return ", ".join(counted(getattr(found, f"{kind}s"), kind) for kind in kinds)
