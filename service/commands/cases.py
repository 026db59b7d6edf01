"""The commands of the review queue: list, show, claim, label, skip, release, assign, export."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from candor.contract.cases import MOST_AT_ONCE, Case, CaseOrder, CaseState
from service.commands.output import console, print_json, print_line, replacing, reporting, whole_column
from service.commands.remote import AsJson, Key, Model, Url

app = typer.Typer(no_args_is_help=True, help="Work on the review queue: predictions that wait for a person.")

_PAGE = 500
Id = Annotated[str, typer.Argument(help="The case: the id of its prediction.")]
State = Annotated[CaseState | None, typer.Option(help="Only cases in this state. Default: all that wait.")]
Order = Annotated[CaseOrder, typer.Option(help="Order of the cases that wait.")]
Policy = Annotated[str | None, typer.Option(help="Only cases of this policy.")]
LeaseS = Annotated[int, typer.Option("--lease", min=1, max=86_400, help="Seconds until the claim expires.")]


@app.command("list")
def list_cases(
    state: State = None,
    order: Order = "priority",
    policy: Policy = None,
    assignee: Annotated[str | None, typer.Option(help="Only cases reserved for this person.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, help="Maximum number of cases.")] = 20,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """List the cases that wait, or those in one state."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        page = client.cases(state=state, order=order, policy=policy, assignee=assignee, limit=limit)
    if as_json:
        print_json(page.document)
        return
    counts = page.counts
    if page.items:
        _table(page.items)
    elif state is None and policy is None and assignee is None:
        console.print("No case waits. Cases arise where the policy has a `review:` block: see docs/how-to/review.md.")
    console.print(f"[dim]{counts.waiting} waiting, {counts.claimed} claimed, {counts.overdue} overdue[/dim]")


@app.command("show")
def show(case: Id, url: Url = DEFAULT_URL, api_key: Key = None, model: Model = None) -> None:
    """Show one case with its row."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        print_json(client.case(case).document)


@app.command("claim")
def claim(
    case: Annotated[str | None, typer.Argument(help="This case; default: the next ones.")] = None,
    count: Annotated[int, typer.Option(min=1, max=MOST_AT_ONCE, help="Maximum number of cases.")] = 1,
    lease_s: LeaseS = 900,
    policy: Policy = None,
    order: Order = "priority",
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Claim the next cases, or a given one. Claim your own again to extend the claim."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        if case is not None:
            found: tuple[Case, ...] = (client.claim_case(case, lease_s=lease_s),)
        else:
            found = client.claim_cases(count, lease_s=lease_s, policy=policy, order=order)
    if as_json:
        print_json({"items": [one.document for one in found]})
    elif found:
        _table(found)
    else:
        console.print("no case is free")


@app.command("label")
def label(
    case: Id,
    label: Annotated[str, typer.Argument(help="The true label.")],
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """End a case with its true label. Label it again to correct yourself."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        done = client.label_case(case, label)
    print_line(done, f"{done.id}: {done.label} ({done.feedback})", as_json)


@app.command("skip")
def skip(
    case: Id,
    reason: Annotated[str, typer.Option(help="Why it cannot be labelled; kept with the case.")],
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """End a case without a label."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        done = client.skip_case(case, reason)
    print_line(done, f"{done.id}: skipped", as_json)


@app.command("release")
def release(
    case: Id, url: Url = DEFAULT_URL, api_key: Key = None, model: Model = None, as_json: AsJson = False
) -> None:
    """Give your claim back, or reopen a case that you labelled or skipped."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        released = client.release_case(case)
    print_line(released, f"{released.id}: {released.state}", as_json)


@app.command("assign")
def assign(
    case: Id,
    to: Annotated[str | None, typer.Option(help="Name of the person's API key; default: anyone.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Reserve a case for a person."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        assigned = client.assign_case(case, to)
    print_line(assigned, f"{assigned.id}: for {assigned.assignee or 'anyone'}", as_json)


@app.command("export")
def export(
    out: Annotated[Path | None, typer.Option(help="File; default: standard output.")] = None,
    state: State = None,
    policy: Policy = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
) -> None:
    """Write cases as NDJSON, one a line: all that wait, or all in one state."""
    with (
        reporting(),
        Client(url, api_key=api_key, model=model) as client,
        nullcontext(sys.stdout.buffer) if out is None else replacing(out) as stream,
    ):
        options: dict[str, Any] = {"state": state, "policy": policy, "order": "due", "limit": _PAGE}
        after = None
        while True:
            page = client.cases(after=after, **options)
            for one in page.items:
                stream.write(json.dumps(one.document, ensure_ascii=False).encode() + b"\n")
            if (after := page.next) is None:
                return


def _table(cases: Iterable[Case]) -> None:
    table = Table(
        whole_column("case"), "policy", "probability", "amount", "loss", "predicted", "state", "who",
        whole_column("due"), box=None, pad_edge=False,
    )  # fmt: skip
    for one in cases:
        amount, loss = (None if value is None else f"{value:,.2f}" for value in (one.amount, one.expected_loss))
        who = one.done_by or one.claimed_by or one.assignee
        state = one.label or one.state
        cells = (one.id, one.policy, f"{one.probability:.4f}", amount, loss, one.predicted, state, who, one.due_at[:19])
        table.add_row(*(escape(cell or "—") for cell in cells), style="bold" if one.overdue else None)
    console.print(table)
