"""`candor recalibrate` and `candor prior-shift`: a new calibrator for the model in service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from service.client import DEFAULT_URL, Client
from service.client.answers import ClassShare, Job, Recalibration
from service.commands.output import (
    INTERRUPTED,
    REFUSED,
    complaints,
    console,
    print_json,
    print_recalibration,
    reporting,
    whole_column,
)
from service.commands.remote import AsJson, Key, Model, Url


class Mode(StrEnum):
    """What may come of a refit."""

    dry_run = "dry_run"
    propose = "propose"
    activate = "activate"


class Population(StrEnum):
    """What labelled rows may be declared to be a random sample of."""

    traffic = "traffic"


Represents = Annotated[
    Population | None, typer.Option(help="Declares the rows to be a random sample of the traffic: then they certify.")
]


class Gate(StrEnum):
    """What a refit must show."""

    superior = "superior"
    non_inferior = "non_inferior"


class Unsought(StrEnum):
    """What becomes of labels that nobody sought."""

    exclude = "exclude"
    fit = "fit"


class Kept(StrEnum):
    """What may come of a prior shift."""

    dry_run = "dry_run"
    propose = "propose"


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("no JSON object")
    return found


Since = Annotated[datetime | None, typer.Option(help="Predictions made at or after this time (UTC).")]
Until = Annotated[datetime | None, typer.Option(help="Predictions made before this time (UTC).")]


def recalibrate(
    mode: Annotated[Mode, typer.Option(help="What may come of it.")] = Mode.dry_run,
    calibrator: Annotated[str | None, typer.Option(help="Method; left out: the one in service.")] = None,
    gate: Annotated[Gate, typer.Option(help="What must be shown.")] = Gate.superior,
    since: Since = None,
    until: Until = None,
    rescore: Annotated[bool, typer.Option("--rescore", help="Score earlier bundles' rows again; they join.")] = False,
    unknown_propensity: Annotated[
        Unsought, typer.Option(help="Whether labels that nobody sought enter the fit.")
    ] = Unsought.exclude,
    implicit_negative: Annotated[
        dict[str, Any] | None,
        typer.Option(
            parser=_json_object,
            metavar="JSON",
            help="Silence as a label: `label`, `source`, `maturity_days` and `actions`, as in the API.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help="How much may change, such as flipped=0.05; may be repeated.",
        ),
    ] = None,
    labelled_set: Annotated[str | None, typer.Option(help="Uploaded set to take in place of feedback.")] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Labelled rows to upload first.")
    ] = None,
    represents: Represents = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Refit the calibrator on labelled feedback and test it against the one in service. Exits 1 when it is refused.

    Every look at the same labels, dry runs included, makes the next gate and the next certificates stricter. Ctrl-C
    cancels the refit.
    """
    if file is not None and labelled_set is not None:
        raise typer.BadParameter("give --labelled-set or --file")
    if represents is not None and file is None:
        raise typer.BadParameter("--represents is said of a --file; of a set it was said when it was uploaded")
    of_traffic = since or until or rescore or implicit_negative or unknown_propensity is Unsought.fit
    if of_traffic and (file is not None or labelled_set is not None):
        raise typer.BadParameter(
            "--since, --until, --rescore, --implicit-negative and --unknown-propensity are of labelled traffic"
        )
    limits = _by_name(limit, "--limit")
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        if file is not None:
            labelled_set = client.upload_labelled_set(file, represents="traffic" if represents else None).id
        job = client.start_recalibration(
            mode=mode.value,
            calibrator=calibrator,
            gate=gate.value,
            since=_utc(since),
            until=_utc(until),
            unknown_propensity=unknown_propensity.value,
            rescore=rescore,
            implicit_negative=implicit_negative,
            labelled_set=labelled_set,
            limits=limits,
        )
        answer = _followed(client, job.job)
    if as_json:
        print_json(answer.document)
    else:
        print_recalibration(answer.document, console)
    if not answer.gate.passed:
        raise typer.Exit(REFUSED)


def prior_shift(
    mode: Annotated[Kept, typer.Option(help="What may come of it.")] = Kept.dry_run,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=SHARE",
            help="Known share of a class now; once for each. Left out: estimated from recent predictions.",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=SHARE",
            help="Share that the calibrator is right for; left out: the reference rows'.",
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Carry the calibrator in service over to other shares of the classes: known ones, or estimated without labels."""
    if target is not None and (since is not None or until is not None):
        raise typer.BadParameter("--since and --until are of an estimate, --target makes none")
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        found = client.prior_shift(
            mode=mode.value,
            target=_by_name(target, "--target"),
            source=_by_name(source, "--source"),
            since=_utc(since),
            until=_utc(until),
        )
    if as_json:
        print_json(found.document)
        return
    table = Table("class", "share before", "now", whole_column("95 % interval"), box=None, pad_edge=False)
    for label, share in found.priors.items():
        table.add_row(escape(label), f"{share.source:.4f}", f"{share.target:.4f}", _interval(share))
    console.print(table)
    console.print(escape(found.summary))
    if found.revision is not None:
        console.print(f"{found.revision} is proposed: candor activate {found.revision} --reason …")


def _interval(share: ClassShare) -> str:
    return "—" if share.interval is None else f"{share.interval[0]:.4f} to {share.interval[1]:.4f}"


def _by_name(texts: Sequence[str] | None, option: str) -> dict[str, float] | None:
    """Return NAME=NUMBER, given once for each, as a mapping; None where none was given.

    Raises:
        typer.BadParameter: It is something else, or a name comes twice.
    """
    found = dict[str, float]()
    for text in texts or ():
        name, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            name = ""
        if not name:
            raise typer.BadParameter(f"{option} {text}: give NAME=NUMBER")
        if name in found:
            raise typer.BadParameter(f"{option} {text}: {name} was given before")
        found[name] = number
    return found or None


def _followed(client: Client, job: str) -> Recalibration:
    """Wait for a refit and draw how far it is; whoever interrupts that cancels it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f}"))
    with Progress(*columns, console=complaints, transient=True, disable=not complaints.is_terminal) as progress:
        bar = progress.add_task("waiting", total=1)

        def draw(found: Job) -> None:
            text = escape(found.progress or found.state)
            progress.update(bar, description=text, completed=found.step, total=max(found.steps, 1))

        try:
            return client.wait(job, progress=draw)
        except KeyboardInterrupt:
            complaints.print(f"{job}: {escape(client.cancel(job).summary or 'cancelled')}", soft_wrap=True)
            raise typer.Exit(INTERRUPTED) from None


def _utc(time: datetime | None) -> str | None:
    return None if time is None else f"{time.isoformat()}Z"
