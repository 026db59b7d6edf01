"""`candor recalibrate` and `candor prior-shift`: a new calibrator for the active model."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from candor import DEFAULT_URL, Client
from candor.contract.jobs import Job
from candor.contract.prior_shift import ClassShare
from candor.contract.recalibration import Recalibration
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
    """What to do with the result of a recalibration."""

    dry_run = "dry_run"
    propose = "propose"
    activate = "activate"


class Population(StrEnum):
    """The population that labelled rows are a random sample of."""

    traffic = "traffic"


Represents = Annotated[
    Population | None, typer.Option(help="Declare the rows a random sample of the traffic, so that they can certify.")
]


class Gate(StrEnum):
    """What the gate requires."""

    superior = "superior"
    non_inferior = "non_inferior"


class Unsought(StrEnum):
    """How to use labels that were not sought."""

    exclude = "exclude"
    fit = "fit"


class Kept(StrEnum):
    """What to do with the result of a prior shift."""

    dry_run = "dry_run"
    propose = "propose"


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("not a JSON object")
    return found


Since = Annotated[datetime | None, typer.Option(help="Predictions made at or after this time (UTC).")]
Until = Annotated[datetime | None, typer.Option(help="Predictions made before this time (UTC).")]


def recalibrate(
    mode: Annotated[Mode, typer.Option(help="What to do with the result.")] = Mode.dry_run,
    calibrator: Annotated[str | None, typer.Option(help="Calibration method; default: the active one.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Column for `--calibrator multicalibration`; repeatable.")
    ] = None,
    gate: Annotated[Gate, typer.Option(help="What the gate requires.")] = Gate.superior,
    since: Since = None,
    until: Until = None,
    rescore: Annotated[
        bool, typer.Option("--rescore", help="Score rows of earlier bundles again and add them.")
    ] = False,
    unknown_propensity: Annotated[
        Unsought, typer.Option(help="Whether labels that were not sought enter the fit.")
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
            help="Limit on a change, such as flipped=0.05; repeatable.",
        ),
    ] = None,
    labelled_set: Annotated[str | None, typer.Option(help="Uploaded set to use instead of feedback.")] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Labelled rows to upload first.")
    ] = None,
    represents: Represents = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Recalibrate on labelled feedback and test the result against the active calibrator. Exits 1 when refused.

    Every look at the same labels, dry runs included, makes the next gate and the next certificates stricter. Ctrl-C
    cancels the recalibration.
    """
    if file is not None and labelled_set is not None:
        raise typer.BadParameter("give either --labelled-set or --file")
    if represents is not None and file is None:
        raise typer.BadParameter("--represents requires --file: a labelled set keeps what was declared at its upload")
    of_traffic = since or until or rescore or implicit_negative or unknown_propensity is Unsought.fit
    if of_traffic and (file is not None or labelled_set is not None):
        raise typer.BadParameter(
            "--since, --until, --rescore, --implicit-negative and --unknown-propensity apply to labelled traffic only"
        )
    limits = _by_name(limit, "--limit")
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        if file is not None:
            labelled_set = client.upload_labelled_set(file, represents="traffic" if represents else None).id
        job = client.start_recalibration(
            mode=mode.value,
            calibrator=calibrator,
            columns=column or None,
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
        print_recalibration(answer, console)
    if not answer.gate.passed:
        raise typer.Exit(REFUSED)


def prior_shift(
    mode: Annotated[Kept, typer.Option(help="What to do with the result.")] = Kept.dry_run,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=SHARE",
            help="Known new frequency of a class; repeatable. Default: estimated from recent predictions.",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=SHARE",
            help="Frequency that the active calibrator was fitted for; default: that of the reference rows.",
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Adjust the active calibrator to new class frequencies, known or estimated without labels."""
    if target is not None and (since is not None or until is not None):
        raise typer.BadParameter(
            "--since and --until choose predictions for an estimate; --target replaces the estimate"
        )
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
    """Return repeated NAME=NUMBER options as a mapping; None without any.

    Raises:
        typer.BadParameter: It is something else, or a name comes twice.
    """
    found = dict[str, float]()
    for text in texts or ():
        name, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not name or not math.isfinite(number):
            raise typer.BadParameter(f"{option} {text}: give NAME=NUMBER")
        if name in found:
            raise typer.BadParameter(f"{option} {text}: {name} was given before")
        found[name] = number
    return found or None


def _followed(client: Client, job: str) -> Recalibration:
    """Wait for a job and show its progress; an interrupt cancels the job."""
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
    if time is None:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()
