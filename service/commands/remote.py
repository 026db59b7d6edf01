"""The verbs that are HTTP calls to CANDOR_URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from service.client import DEFAULT_URL, Client
from service.client.answers import AppliedPolicy, Pointer
from service.client.label_files import FIELDS
from service.commands.output import (
    complaints,
    console,
    print_json,
    reporting,
    whole_column,
)

Url = Annotated[str, typer.Option(envvar="CANDOR_URL", help="Where the service is.")]
Key = Annotated[str | None, typer.Option("--api-key", envvar="CANDOR_API_KEY", help="API key.", show_envvar=True)]
Model = Annotated[str | None, typer.Option(help="Model; left out: the service's default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")]
Reason = Annotated[str | None, typer.Option(help="Why; goes into the audit log.")]


def predict(
    files: Annotated[
        list[Path], typer.Argument(help="PNG, JPEG, WebP, .npy, JSON or text files.", exists=True, dir_okay=False)
    ],
    policy: Annotated[str | None, typer.Option(help="Policy that decides.")] = None,
    segment: Annotated[str | None, typer.Option(help="Part of the traffic that the inputs belong to.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Show this many probabilities.")] = 3,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Ask for calibrated probabilities and a decision."""
    shown = None if as_json else top
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        answers = [client.predict_file(path, policy=policy, top=shown, segment=segment) for path in files]
    if as_json:
        documents = [answer.document for answer in answers]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    table = Table(
        "file", "label", "confidence", "decision", "next best", whole_column("prediction id"), box=None, pad_edge=False
    )
    for path, answer in zip(files, answers, strict=True):
        for prediction in answer.predictions:
            others = [(label, p) for label, p in prediction.probabilities.items() if label != prediction.label]
            table.add_row(
                escape(path.name),
                escape(prediction.label),
                f"{prediction.confidence:.4f}",
                escape(prediction.decision.action) if prediction.decision else "—",
                escape(", ".join(f"{label} {p:.4f}" for label, p in others[: top - 1])) or "—",
                prediction.prediction_id,
            )
    console.print(table)
    answer = answers[-1]
    console.print(f"[dim]{answer.model} {answer.revision}[/dim]")
    for line in _certificates(answer.policy):
        console.print(f"[dim]{escape(line)}[/dim]")


def feedback(
    prediction_id: Annotated[str | None, typer.Argument(help="Id from the prediction's answer.")] = None,
    label: Annotated[str | None, typer.Argument(help="The true label.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help=f"CSV with a header, or NDJSON (.ndjson, .jsonl): some of {', '.join(FIELDS)}.",
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
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        if file is not None:
            receipt = client.feedback_file(file, source=source, idempotency_key=idempotency_key)
        else:
            item = {"prediction_id": prediction_id, "label": label, "source": source}
            receipt = client.feedback([item], idempotency_key=idempotency_key)
    if as_json:
        print_json(receipt.document)
        return
    console.print(
        f"{receipt.stored} stored, {receipt.pending} pending, {receipt.duplicates} duplicates, "
        f"{receipt.conflicts} conflicts of {len(receipt.items)}"
    )


def revisions(
    revision: Annotated[str | None, typer.Argument(help="Show this one whole.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """List the revisions of a model, newest first, or show one whole."""
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
    epoch: Annotated[int | None, typer.Option(help="Epoch that you decided on; left out: the present one.")] = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Put a revision into service."""
    _move(url, api_key, model, epoch, as_json, lambda client, at: client.activate(revision, epoch=at, reason=reason))


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


def _certificates(policy: AppliedPolicy | None) -> Iterator[str]:
    if policy is None:
        yield "no policy"
        return
    yield f"policy {policy.id}"
    parts = [("", policy.certified), *((f"{value}, ", part.certified) for value, part in policy.segments.items())]
    if policy.fallback is not None:
        yield f"any other segment: {policy.fallback}"
    for action, certificate in ((of + action, found) for of, part in parts for action, found in part.items()):
        if certificate.valid:
            bound = f"≤ {certificate.at_most:g}" if certificate.at_least is None else f"≥ {certificate.at_least:g}"
            yield (
                f"{action}: {certificate.metric} {bound}, certified at delta {certificate.delta:g} on "
                f"{certificate.n} {certificate.basis} rows"
            )
        else:
            yield f"{action}: not certified: {certificate.reason}"


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
        console.print(f"{answer.active} is active (epoch {answer.epoch})")
