"""The commands that call the service at CANDOR_URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from candor.contract.revisions import Pointer
from candor.label_files import FIELDS
from service.commands.output import (
    REFUSED,
    complaints,
    console,
    print_json,
    print_traffic,
    reporting,
    whole_column,
)

Url = Annotated[str, typer.Option(envvar="CANDOR_URL", help="URL of the service.")]
Key = Annotated[str | None, typer.Option("--api-key", envvar="CANDOR_API_KEY", help="API key.", show_envvar=True)]
Model = Annotated[str | None, typer.Option(help="Model; default: the default model of the service.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")]
Epoch = Annotated[int | None, typer.Option(help="Epoch that your decision is based on; default: the current one.")]
Reason = Annotated[str | None, typer.Option(help="Reason, kept in the audit log.")]


def feedback(
    prediction_id: Annotated[str | None, typer.Argument(help="Id from the prediction's answer.")] = None,
    label: Annotated[str | None, typer.Argument(help="The true label.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="Id from the prediction's answer.")] = None,
    reference: Annotated[str | None, typer.Option(help="Your own reference of the prediction.")] = None,
    true_label: Annotated[str | None, typer.Option("--label", help="The true label.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help=f"CSV with a header, or NDJSON (.ndjson, .jsonl), with some of the columns {', '.join(FIELDS)}.",
        ),
    ] = None,
    source: Annotated[str, typer.Option(help="Source of the labels.")] = "client",
    idempotency_key: Annotated[str | None, typer.Option(help="Key that makes a repeated call harmless.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Send true labels: one on the command line, or many in a file.

    A prediction is named by its id, or by the reference that you sent with it: candor feedback --reference tx-91 fraud.
    """
    if label is None and true_label is None and (id_ is not None or reference is not None):
        prediction_id, label = None, prediction_id  # --reference tx-91 fraud: the only word is the label
    names = [name for name in (prediction_id, id_, reference) if name is not None]
    labels = [text for text in (label, true_label) if text is not None]
    if (len(names), len(labels)) != ((1, 1) if file is None else (0, 0)):
        raise typer.BadParameter(
            "Name one prediction (PREDICTION_ID, --id or --reference) and one true label (LABEL or --label), or a "
            f"--file. Found: {len(names)} names of predictions, {len(labels)} labels, "
            f"{'no' if file is None else 'a'} file."
        )
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        if file is not None:
            receipt = client.feedback_file(file, source=source, idempotency_key=idempotency_key)
        else:
            name = {"reference": reference} if reference is not None else {"prediction_id": names[0]}
            item = {**name, "label": labels[0], "source": source}
            receipt = client.feedback([item], idempotency_key=idempotency_key)
    if as_json:
        print_json(receipt.document)
        return
    console.print(
        f"{receipt.stored} stored, {receipt.pending} pending, {receipt.duplicates} duplicates, "
        f"{receipt.conflicts} conflicts of {len(receipt.items)}"
    )


def revisions(
    revision: Annotated[str | None, typer.Argument(help="Show this revision in full.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """List the revisions of a model, newest first, or show one in full."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        if revision:
            print_json(client.revision(revision).document)
            return
        page = client.revisions()
    if as_json:
        print_json(page.document)
        return
    table = Table(
        whole_column("revision"),
        whole_column("state"),
        "cause",
        "gate",
        "by",
        whole_column("created"),
        "summary",
        box=None,
        pad_edge=False,
    )
    for item in page.items:
        cells = (item.id, item.state, item.cause, item.gate, item.by, item.created_at[:19], item.summary)
        table.add_row(*(escape(cell or "—") for cell in cells), style="bold" if item.state == "active" else None)
    console.print(table)
    console.print(f"[dim]epoch {page.epoch}[/dim]")


def activate(
    revision: Annotated[str, typer.Argument(help="Revision to put into service.")],
    reason: Reason = None,
    max_change: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Largest change of an action's share; can only tighten the service's limit."),
    ] = None,
    yes_i_mean: Annotated[
        bool, typer.Option("--yes-i-mean", help="Accept a change of the traffic beyond the limit; requires --reason.")
    ] = False,
    guard: Annotated[
        float | None,
        typer.Option(min=1, max=2_592_000, help="Roll back by itself if a share changes more within these seconds."),
    ] = None,
    guard_max_change: Annotated[
        float | None, typer.Option(min=0, max=0.999, help="Change that --guard allows; default: the service's limit.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Only show what would change. Exits 1 beyond the limit.")] = False,
    epoch: Epoch = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Put a revision into service, after a replay of recent predictions."""
    if guard_max_change is not None and guard is None:
        raise typer.BadParameter("--guard-max-change requires --guard")
    watch = None if guard is None else {"window": guard}
    if watch is not None and guard_max_change is not None:
        watch["max_change"] = guard_max_change
    if dry_run:
        with reporting(), Client(url, api_key=api_key, model=model) as client:
            change = client.traffic_change(revision, max_change=max_change)
        if as_json:
            print_json(change.document)
        else:
            print_traffic(change, console)
        raise typer.Exit(REFUSED if change.exceeds else 0)

    def move(client: Client, at: int) -> Pointer:
        return client.activate(
            revision, epoch=at, reason=reason, accept_change=yes_i_mean, max_change=max_change, guard=watch
        )

    _move(url, api_key, model, epoch, as_json, move)


def rollback(
    reason: Reason = None,
    epoch: Epoch = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Put the previous revision back into service."""
    _move(url, api_key, model, epoch, as_json, lambda client, at: client.rollback(epoch=at, reason=reason))


def _move(
    url: str,
    api_key: str | None,
    model: str | None,
    epoch: int | None,
    as_json: bool,
    move: Callable[[Client, int], Pointer],
) -> None:
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        answer = move(client, epoch if epoch is not None else client.revisions(limit=1).epoch)
    for warning in answer.warnings:
        complaints.print(f"[yellow]{escape(warning)}[/yellow]", soft_wrap=True)
    if as_json:
        print_json(answer.document)
    else:
        if answer.traffic is not None:
            print_traffic(answer.traffic, console)
        console.print(f"{answer.active} is active (epoch {answer.epoch})")
        if (guard := answer.guard) is not None:
            console.print(
                f"its guard watches until {guard.until[:19]}, and then rolls back to {guard.previous} if needed"
            )
