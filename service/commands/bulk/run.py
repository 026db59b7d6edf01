"""Predict a table, from the check of its columns to the finished output."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import typer
from rich.markup import escape

from candor import AsyncClient, Client, NotFoundError, UnavailableError
from candor.contract.models import Model
from service.bulk.columns import RowColumns, check_known
from service.commands.bulk.columns import Sent
from service.commands.bulk.journal import Journal
from service.commands.bulk.outcome import Outcomes
from service.commands.bulk.progress import progress_bar
from service.commands.bulk.scoring import RETRIES, Scoring
from service.commands.bulk.tables import Survey, read_rows
from service.commands.bulk.writing import FORMATS, Output
from service.commands.output import INTERRUPTED, complaints
from service.errors import ConfigurationError, InputValueError


@dataclass(frozen=True, kw_only=True)
class Options(RowColumns):
    """How to predict a table; `candor predict --help` describes them."""

    out: Path | None
    policy: str | None
    scores: Sequence[str]
    drop: Collection[str]
    top: int | None
    batch: int
    connections: int
    resume: bool
    strict: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did.

    Attributes:
        out: The file written.
        model: Name of the model.
        rows: Number of rows in it.
        kept: How many of them an interrupted run had finished.
        refused: How many of them the service refused.
        actions: How many were decided, by action.
        revisions: Revisions that predicted them.
    """

    out: Path
    model: str
    rows: int
    kept: int
    refused: int
    actions: Mapping[str, int]
    revisions: Sequence[str]


def predict_table(file: Path, options: Options, *, url: str, api_key: str | None, model: str | None) -> Summary:
    """Predict the rows of a table and write them with their outcomes.

    Raises:
        CandorError: The file, its columns or an option cannot be used.
        ClientError: The service does not answer, refuses or fails.
        typer.Exit: The run was interrupted.
    """
    out = _output(file, options.out)
    with Client(url, api_key=api_key) as client:
        served = _served(client.models(), model)
    with complaints.status(f"Reading {escape(file.name)}"):
        survey = Survey.of(file)
    for name in options.drop:
        check_known(name, survey.columns, "--drop")
    sent = Sent.of(
        survey.columns,
        served,
        scores=options.scores,
        columns=options,
    )
    outcomes = Outcomes(served.labels, options.top)
    output = Output(file, survey, outcomes, options.drop)
    with _journal(out, survey, served, options) as journal, _kept(journal, survey.rows):
        kept = journal.rows
        scoring = Scoring(
            AsyncClient(url, api_key=api_key, model=served.model, retries=RETRIES),
            file,
            sent,
            outcomes,
            policy=options.policy,
            batch=options.batch,
            connections=options.connections,
            strict=options.strict,
        )
        asyncio.run(_score(scoring, journal, survey.rows))
        if journal.rows < survey.rows:
            raise KeyboardInterrupt
        with complaints.status(f"Writing {escape(out.name)}"):
            output.write(out, journal)
        journal.delete()
    return Summary(out, served.model, journal.rows, kept, journal.refused, journal.actions, sorted(journal.revisions))


async def _score(scoring: Scoring, journal: Journal, total: int) -> None:
    with progress_bar() as bar:
        task = bar.add_task("", total=total, completed=journal.rows, refused=journal.refused)

        def finished() -> None:
            bar.update(task, completed=journal.rows, refused=journal.refused)

        async with scoring.client:
            with closing(read_rows(scoring.file)) as rows:
                await scoring.run(islice(rows, journal.rows, None), journal, finished)


def _output(file: Path, out: Path | None) -> Path:
    """Return the file to write.

    Raises:
        InputValueError: Its ending is unknown, or it is the table itself.
        UnsupportedMediaTypeError: It is a Parquet file, and the extra `parquet` is not installed.
    """
    if out is None:
        suffix = file.suffix if file.suffix.lower() in FORMATS else ".csv"
        return file.with_name(f"{file.stem}.predictions{suffix}")
    if out.suffix.lower() == ".parquet":
        from service.row_files.parquet_rows import check_installed

        check_installed()
    if out.suffix.lower() not in FORMATS:
        raise InputValueError(
            f"{out}: unknown ending.", where="--out", found=out.suffix, expected=f"one of {', '.join(FORMATS)}"
        )
    if out.resolve() == file.resolve():
        raise InputValueError(f"{out} is the table itself.", where="--out", expected="another file")
    return out


def _served(models: Sequence[Model], name: str | None) -> Model:
    """Return the model to ask.

    Raises:
        NotFoundError: There is no such model, or several and no name.
        UnavailableError: It serves nothing.
    """
    found = [model for model in models if name in (None, model.model)]
    if len(found) != 1:
        names = ", ".join(model.model for model in models)
        title = "Unknown model" if name is not None else "Several models"
        raise NotFoundError(404, {"title": title, "detail": "Name one of the models with --model.", "expected": names})
    if found[0].revision is None:
        raise UnavailableError(
            503, {"title": "Model not served", "detail": f"{found[0].model}: {found[0].problem or 'it is unloaded'}"}
        )
    return found[0]


def _journal(out: Path, survey: Survey, model: Model, options: Options) -> Journal:
    run = {
        "file": survey.digest,
        "model": model.model,
        "labels": model.labels,
        "policy": options.policy,
        "scores": options.scores,
        **options.named(),
        "top": options.top,
    }
    try:
        return Journal(out.with_name(f"{out.name}.unfinished"), run, resume=options.resume)
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror}", where=str(out)) from error


@contextmanager
def _kept(journal: Journal, total: int) -> Iterator[None]:
    """Say how to go on when a run ends early; Ctrl-C ends it with the shells' exit code."""
    try:
        yield
    except BaseException as error:
        if journal.rows:
            complaints.print(
                f"{journal.rows:,} of {total:,} rows are finished. Go on with [bold]--resume[/bold].",
                soft_wrap=True,
                highlight=False,
            )
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(INTERRUPTED) from None
        raise
