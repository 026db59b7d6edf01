"""The commands of approvers: reject a proposal, read the audit log."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from service.commands.output import console, print_json, reporting, whole_column
from service.commands.remote import AsJson, Key, Model, Url


def reject(
    revision: Annotated[str, typer.Argument(help="Proposal to reject.")],
    reason: Annotated[str, typer.Option(help="Reason, kept in the audit log.")],
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Reject a proposal. Activating it later requires a reason."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        answer = client.reject(revision, reason=reason)
    if as_json:
        print_json(answer.document)
    else:
        console.print(f"{answer.id} is rejected")


def audit(
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 50,
    before: Annotated[int | None, typer.Option(help="Only entries before this one.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """List what was done to a model, by whom and when, newest first."""
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
