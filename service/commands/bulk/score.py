"""`candor score`: the rows of files, on all cores of this machine and without a server."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from service.bulk import fork_server
from service.commands.local import settings_of
from service.commands.output import INTERRUPTED, REFUSED, complaints, console, print_json, reporting
from service.commands.remote import AsJson

if TYPE_CHECKING:
    from service.bulk import Summary


class Format(StrEnum):
    """Formats of the output."""

    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"


class OnError(StrEnum):
    """What becomes of a refused row."""

    FAIL = "fail"
    SKIP = "skip"


def score(
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="CSV, NDJSON, Parquet or npz: a file, a folder, or a URL for fsspec.")
    ],
    output: Annotated[str, typer.Argument(help="New folder for the scored parts: a path, or a URL for fsspec.")],
    model: Annotated[str | None, typer.Option(help="Model that scores. Optional with a single model.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy that decides.")] = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url",
            "--database",
            envvar="CANDOR_DATABASE_URL",
            help="State of the service: its active revision scores. Without it: the newest bundle.",
        ),
    ] = None,
    bundles: Annotated[str | None, typer.Option(help="Folder or URL of bundles (CANDOR_BUNDLES).")] = None,
    policies: Annotated[
        Path | None, typer.Option(help="Folder of policies, for scoring without a state (CANDOR_POLICIES).")
    ] = None,
    reference: Annotated[str | None, typer.Option(help="Column with your own id of the row.")] = None,
    group: Annotated[str | None, typer.Option(help="Column with what the row belongs to: card, patient …")] = None,
    segment: Annotated[str | None, typer.Option(help="Column with the part of the traffic.")] = None,
    amount: Annotated[str | None, typer.Option(help="Column with the amount at stake.")] = None,
    scores: Annotated[
        str | None,
        typer.Option("--scores", "--score", help="Columns of scores that others computed: p_genuine,p_fraud."),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out of the output. Repeatable.")] = None,
    prefix: Annotated[str, typer.Option(help="Prefix of the added columns.")] = "",
    format_: Annotated[
        Format | None, typer.Option("--format", help="Format of the output. Default: that of the input; of npz, csv.")
    ] = None,
    part_rows: Annotated[int, typer.Option(min=1, help="Maximum rows per part of the output.")] = 100_000,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of processes. Default: one per available CPU; one on a GPU.")
    ] = None,
    on_error: Annotated[
        OnError, typer.Option(help="Refused rows: stop at the first, or write them to files of rejects.")
    ] = OnError.FAIL,
    log: Annotated[
        bool, typer.Option("--log", help="Log the predictions to the state, for labels that come later.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    ray: Annotated[
        str | None,
        typer.Option(help="Score on the Ray cluster at this address; `auto` for the one of this machine (extra ray)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score files on all cores, without a server: calibrated probabilities, decisions and prediction ids.

    Writes parts with the columns of the input and prediction_id, label, confidence, p_LABEL, action, revision and,
    if the policy has prediction sets, set; and manifest.json. Exits 1 when rows were refused.
    """
    if processes != 1 and ray is None:
        fork_server.begin()  # it imports modules while this process does
    from service.bulk import Options
    from service.bulk import score as score_files
    from service.commands.bulk.progress import progress_bar

    given = {"bundles": bundles, "policies": policies, "database_url": database_url}
    options = Options(
        model=model,
        policy=policy,
        reference=reference,
        group=group,
        segment=segment,
        amount=amount,
        scores=tuple(scores.split(",")) if scores else (),
        drop=tuple(drop or ()),
        prefix=prefix,
        format=None if format_ is None else format_.value,
        part_rows=part_rows,
        processes=processes,
        on_error=on_error.value,
        log=log,
        resume=resume,
        ray=ray,
    )
    before = signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # a stop is an interruption: what is done is kept
    try:
        with reporting(), progress_bar() as bar:
            settings = settings_of(given)
            task = bar.add_task("", total=None, refused=0)

            def progress(rows: int, rejected: int, total: int | None) -> None:
                bar.update(task, completed=rows + rejected, total=total, refused=rejected)

            summary = score_files(
                source, output, options, settings=settings, database_url=database_url, progress=progress
            )
    except KeyboardInterrupt:
        complaints.print("Interrupted. Go on with [bold]--resume[/bold].", highlight=False)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    _print(summary, as_json=as_json)
    if summary.rejected:
        raise typer.Exit(REFUSED)


def _print(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        from dataclasses import asdict

        document: dict[str, Any] = asdict(summary)
        print_json(document)
        return
    kept = f", {summary.kept:,} of them before" if summary.kept else ""
    parts = f"{summary.parts:,} part{'s' * (summary.parts != 1)}"
    rows = f"{summary.rows:,} row{'s' * (summary.rows != 1)}"
    console.print(escape(f"{summary.output}: {rows} in {parts}{kept}"), soft_wrap=True, highlight=False)
    if summary.actions:
        console.print(escape(", ".join(f"{action} {count:,}" for action, count in summary.actions.items())))
    console.print(f"[dim]{escape(' '.join(filter(None, (summary.model, summary.revision, summary.policy))))}[/dim]")
    for said in summary.warnings:
        complaints.print(f"[yellow]{escape(said)}[/yellow]", soft_wrap=True, highlight=False)
    if summary.rejected:
        complaints.print(f"[yellow]Refused rows: {summary.rejected:,}. See rejects-*.ndjson.[/yellow]", highlight=False)
