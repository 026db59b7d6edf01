"""The commands of models: list, load, unload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from candor.contract.certificates import SolvedPolicy
from candor.contract.models import Model
from service.commands.output import (
    REFUSED,
    complaints,
    console,
    print_certificates,
    print_json,
    print_line,
    print_sets,
    reporting,
    whole_column,
)
from service.commands.remote import AsJson, Key, Url

Name = Annotated[str, typer.Argument(help="Name of the model.")]


def models(url: Url = DEFAULT_URL, api_key: Key = None, as_json: AsJson = False) -> None:
    """List the models and what each serves."""
    with reporting(), Client(url, api_key=api_key) as client:
        found = client.models()
    if as_json:
        print_json({"items": [model.document for model in found]})
        return
    table = Table(
        whole_column("model"), "state", whole_column("revision"), "bundle", "on", "policies", box=None, pad_edge=False
    )
    for model in found:
        cells = (model.model, _state(model), model.revision, model.bundle, model.provider, ", ".join(model.policies))
        table.add_row(*(escape(str(cell or "—")) for cell in cells), style="bold" if model.problem else None)
    console.print(table)


def load(model: Name, url: Url = DEFAULT_URL, api_key: Key = None, as_json: AsJson = False) -> None:
    """Serve a model on every replica; newer bundles in its folder become proposals. Exits 1 when any is refused."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        answer = client.load(model)
        proposals = {} if as_json else {version: client.revision(made) for version, made in answer.proposed.items()}
    if as_json:
        print_json(answer.document)
    else:
        console.print(f"{escape(answer.model)} is served: {answer.revision}, of bundle {answer.bundle}")
        for version, proposal in proposals.items():
            console.print(f"bundle {version} is proposed as {proposal.id}: candor activate {proposal.id}")
            _print_policies(proposal.policies)
    for version, why in answer.refused.items():
        complaints.print(f"[yellow]bundle {version} was refused[/yellow]: {escape(why)}", soft_wrap=True)
    if answer.refused:
        raise typer.Exit(REFUSED)


def unload(model: Name, url: Url = DEFAULT_URL, api_key: Key = None, as_json: AsJson = False) -> None:
    """Stop serving a model on every replica. Accepted predictions are answered; its state stays as it is."""
    with reporting(), Client(url, api_key=api_key) as client:
        answer = client.unload(model)
    print_line(answer, f"{answer.model} is unloaded", as_json)


def _print_policies(policies: Mapping[str, SolvedPolicy]) -> None:
    for policy, solved in policies.items():
        for bands, decides in (
            (solved.bands, not solved.review_all),
            *((segment.bands, segment.certified) for segment in solved.segments.values()),
        ):
            print_certificates(policy, {band.action: band.certificate for band in bands}, console, decides=decides)
        print_sets(policy, solved.sets, console)


def _state(model: Model) -> str:
    if model.problem is not None:
        return model.problem
    return "served" if model.loaded else "unloaded"
