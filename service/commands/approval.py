"""The commands of approvers: reject a proposal."""

from __future__ import annotations

from typing import Annotated

import typer

from candor import DEFAULT_URL, Client
from service.commands.output import print_line, reporting
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
    print_line(answer, f"{answer.id} is rejected", as_json)
