"""`candor predict`: images and texts one by one, or the rows of a table in bulk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from candor.contract.predictions import AppliedPolicy, Predictions
from candor.payloads import LABELLED_TYPES
from service.commands.output import REFUSED, complaints, console, print_json, reporting, whole_column
from service.commands.remote import AsJson, Key, Model, Url

if TYPE_CHECKING:
    from service.commands.bulk.run import Summary

_TOP = 3


def predict(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="PNG, JPEG, WebP, .npy, JSON or text files; or one table: CSV, NDJSON, Parquet or npz.",
            exists=True,
            dir_okay=False,
        ),
    ],
    policy: Annotated[str | None, typer.Option(help="Policy that decides.")] = None,
    segment: Annotated[
        str | None,
        typer.Option(help="Part of the traffic that the inputs belong to. Of a table: the column that names it."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=0, help="Show this many probabilities, largest first. Default: 3; of a table, all."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="File to write: .csv, .ndjson or .parquet. Default: FILE.predictions with the table's ending.",
        ),
    ] = None,
    score: Annotated[str | None, typer.Option(help="Column of scores that others computed, one per row.")] = None,
    scores: Annotated[str | None, typer.Option(help="Columns of a score per class: p_genuine,p_fraud.")] = None,
    reference: Annotated[str | None, typer.Option(help="Column with your own id of the row.")] = None,
    group: Annotated[str | None, typer.Option(help="Column with what the row belongs to: card, patient …")] = None,
    amount: Annotated[str | None, typer.Option(help="Column with the amount at stake.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out of the output. Repeatable.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows per request.")] = 256,
    connections: Annotated[int, typer.Option(min=1, max=64, help="Requests at a time.")] = 4,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that the service refuses.")] = False,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Ask for calibrated probabilities and decisions, for files or for the rows of a table.

    For a model of scores alone, --score or --scores names their columns.

    For a table, writes its columns and prediction_id, label, confidence, p_LABEL, action, revision and error.
    Exits 1 if the service refused rows.
    """
    if not any(path.suffix.lower() in LABELLED_TYPES for path in files):
        if any((out, score, scores, reference, group, amount, drop, resume, strict)):
            raise typer.BadParameter(
                f"Only --policy, --segment and --top apply to files that are not tables. Found: {files[0].name}. "
                f"Tables end in {', '.join(LABELLED_TYPES)}."
            )
        with reporting(), Client(url, api_key=api_key, model=model) as client:
            shown = _TOP if top is None else top
            answers = [
                client.predict_file(path, policy=policy, top=None if as_json else shown, segment=segment)
                for path in files
            ]
        _print_answers(files, answers, shown, as_json=as_json)
        return
    if len(files) > 1:
        raise typer.BadParameter("give one table at a time")
    if score and scores:
        raise typer.BadParameter("give either --score or --scores")
    from service.commands.bulk.run import Options, predict_table

    with reporting():
        named = [score] if score else scores.split(",") if scores else []
        options = Options(
            out=out,
            policy=policy,
            scores=named,
            reference=reference,
            group=group,
            segment=segment,
            amount=amount,
            drop=drop or (),
            top=top,
            batch=batch,
            connections=connections,
            resume=resume,
            strict=strict,
        )
        summary = predict_table(files[0], options, url=url, api_key=api_key, model=model)
    _print_summary(summary, as_json=as_json)
    if summary.refused:
        raise typer.Exit(REFUSED)


def _print_answers(files: Sequence[Path], answers: Sequence[Predictions], top: int, *, as_json: bool) -> None:
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
                escape(", ".join(f"{label} {p:.4f}" for label, p in others[: max(0, top - 1)])) or "—",
                prediction.prediction_id,
            )
    console.print(table)
    answer = answers[-1]
    console.print(f"[dim]{answer.model} {answer.revision}[/dim]")
    for line in _certificates(answer.policy):
        console.print(f"[dim]{escape(line)}[/dim]")


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


def _print_summary(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "out": str(summary.out),
                "model": summary.model,
                "revisions": summary.revisions,
                "rows": summary.rows,
                "kept": summary.kept,
                "refused": summary.refused,
                "actions": summary.actions,
            }
        )
        return
    kept = f", {summary.kept:,} of them before" if summary.kept else ""
    rows = f"{summary.rows:,} row{'s' * (summary.rows != 1)}"
    console.print(escape(f"{summary.out}: {rows}{kept}"), soft_wrap=True, highlight=False)
    if summary.actions:
        console.print(escape(", ".join(f"{action} {count:,}" for action, count in summary.actions.items())))
    console.print(f"[dim]{escape(summary.model)} {', '.join(summary.revisions)}[/dim]")
    if summary.refused:
        told = f"The service refused {summary.refused:,} of {summary.rows:,} rows: see the column `error`."
        complaints.print(f"[yellow]{told}[/yellow]", highlight=False)
