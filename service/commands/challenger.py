"""`candor challenger`: revisions that are scored beside the active one and never answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from candor.contract.challengers import ChallengerComparison, OutcomeQuestion, Question
from service.commands.output import console, print_json, print_line, reporting, whole_column
from service.commands.remote import AsJson, Key, Model, Url

app = typer.Typer(no_args_is_help=True, help="Compare the active revision with revisions that only score.")

_FEW = 0.01  # largest share of rows of returning groups that is not reported

Name = Annotated[str, typer.Argument(help="Name of the challenger.")]
Revision = Annotated[str | None, typer.Option(help="Revision to score, such as r8.")]
Bundle = Annotated[int | None, typer.Option(help="Bundle whose newest revision to score.")]
Share = Annotated[
    float, typer.Option(min=0, max=1, help="Share of the groups that a challenger of another bundle scores.")
]


@app.command("add")
def add(
    name: Name,
    revision: Revision = None,
    bundle: Bundle = None,
    share: Share = 0.1,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Score a revision beside the active one, or give a challenger another revision."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        found = client.put_challenger(name, revision=revision, bundle=bundle, share=share)
    if as_json:
        print_json(found.document)
        return
    how = "on logged scores" if found.scoring == "from the log" else f"on {found.share:.1%} of the groups"
    console.print(f"{escape(found.name)} is {found.revision}, compared {how}: candor challenger compare {escape(name)}")
    if found.more_columns:
        console.print(f"Send its columns in the rows too: {escape(', '.join(found.more_columns))}", soft_wrap=True)


@app.command("list")
def list_(url: Url = DEFAULT_URL, api_key: Key = None, model: Model = None, as_json: AsJson = False) -> None:
    """List the challengers of a model."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        found = client.challengers()
    if as_json:
        print_json(found.document)
        return
    if not found.items:
        console.print("No revision is compared. Add one: candor challenger add NAME --bundle NUMBER, or --revision ID.")
        return
    table = Table(whole_column("challenger"), "revision", "bundle", "scoring", "share", "since", box=None)
    for one in found.items:
        scoring = escape(one.problem or one.scoring)
        table.add_row(escape(one.name), one.revision, str(one.bundle), scoring, f"{one.share:.1%}", one.since)
    console.print(table)


@app.command()
def remove(
    name: Name, url: Url = DEFAULT_URL, api_key: Key = None, model: Model = None, as_json: AsJson = False
) -> None:
    """Stop scoring a challenger, and delete its scores."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        found = client.delete_challenger(name)
    print_line(found, f"{found.name} ({found.revision}) is no longer scored", as_json)


@app.command()
def compare(
    name: Name, url: Url = DEFAULT_URL, api_key: Key = None, model: Model = None, as_json: AsJson = False
) -> None:
    """Show which revision is better so far, the challenger or the active revision. Look as often as you like."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        found = client.challenger(name)
    if as_json:
        print_json(found.document)
        return
    for line in _lines(found):
        console.print(line)


def _lines(found: ChallengerComparison) -> Iterator[str | Table]:
    yield f"{escape(found.name)} ({found.revision}) beside {found.active}"
    if found.problem is not None:
        yield f"[yellow]{escape(found.problem)}[/yellow]"
    yield f"{found.scored} mature predictions scored by both; {found.labelled} labels count, {found.missing} missing"
    if found.returned > _FEW * found.scored:
        yield (
            f"[yellow]{found.returned} predictions are left out: their groups were counted before. The frequent groups "
            "come first, so an arm may be better for them and worse for rare ones.[/yellow]"
        )
    if found.log_loss is None:
        yield "[dim]nothing compared yet[/dim]"
        return
    table = Table("question", "active", "challenger", "difference", "interval", "better", box=None, pad_edge=False)
    table.add_row("log loss", *_cells(found.log_loss))
    for outcome in found.policies:
        table.add_row(escape(f"{outcome.policy}: {outcome.unit}"), *_cells(outcome))
    yield table
    for outcome in found.policies:
        yield _flips(outcome)
    if found.level is not None:
        yield f"[dim]Each answer is wrong with probability {found.level:.3g} at most, at all looks together.[/dim]"


def _cells(one: Question) -> tuple[str, ...]:
    means = ("—" if value is None else f"{value:.4f}" for value in (one.active, one.challenger, one.difference))
    return *means, f"{one.interval[0]:.4f} to {one.interval[1]:.4f}", one.better or "undecided"


def _flips(outcome: OutcomeQuestion) -> str:
    changes = ", ".join(
        f"{one.rows} {one.active} → {one.challenger}" + ("" if one.amount is None else f" (amount {one.amount:,.2f})")
        for one in outcome.changes[:5]
    )
    told = f"{outcome.policy}: {outcome.flipped} of {outcome.rows} decisions differ"
    cut = f"; {outcome.amount_cut} amounts count as {outcome.amount_limit:,.2f}" if outcome.amount_cut else ""
    return escape((f"{told}: {changes}" if changes else told) + cut)
