"""The verbs of refit jobs: list, show, cancel, propose."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from service.client import DEFAULT_URL, Client
from service.client.answers import Job
from service.commands.output import console, print_json, reporting, whole_column
from service.commands.remote import AsJson, Key, Model, Url

app = typer.Typer(no_args_is_help=True, help="List, follow and cancel refits.")

Id = Annotated[str, typer.Argument(help="The job, such as j12.")]


@app.command("list")
def list_jobs(
    state: Annotated[str | None, typer.Option(help="queued, running, done, failed or cancelled.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="At most so many.")] = 20,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """List refits, newest first."""
    with reporting(), Client(url, api_key=api_key) as client:
        page = client.jobs(model=model, state=state, limit=limit)  # type: ignore[arg-type]  # the service names the states
    if as_json:
        print_json(page.document)
        return
    table = Table(
        whole_column("job"), "model", "state", "by", whole_column("created"), "what", box=None, pad_edge=False
    )
    for job in page.items:
        cells = (job.job, job.model, job.state, job.by, job.created_at[:19], what(job))
        table.add_row(*(escape(cell or "—") for cell in cells))
    console.print(table)


@app.command("show")
def show(job: Id, url: Url = DEFAULT_URL, api_key: Key = None) -> None:
    """Show one refit whole."""
    with reporting(), Client(url, api_key=api_key) as client:
        print_json(client.job(job).document)


@app.command("cancel")
def cancel(job: Id, url: Url = DEFAULT_URL, api_key: Key = None, as_json: AsJson = False) -> None:
    """End a refit that waits or runs. Looks that it has spent stay spent."""
    with reporting(), Client(url, api_key=api_key) as client:
        ended = client.cancel(job)
    if as_json:
        print_json(ended.document)
    else:
        console.print(f"{ended.job}: {escape(ended.summary or ended.state)}")


@app.command("propose")
def propose(job: Id, url: Url = DEFAULT_URL, api_key: Key = None, as_json: AsJson = False) -> None:
    """Keep what a dry run has found as a proposal, without another look at the same rows."""
    with reporting(), Client(url, api_key=api_key) as client:
        kept = client.propose_job(job)
    if as_json:
        print_json(kept.document)
    else:
        console.print(f"revision {kept.revision}: {kept.state}. {escape(kept.summary)}")


def what(job: Job) -> str:
    """Return in words how far a job is, or what came of it."""
    if job.summary:
        return job.summary
    if job.error:
        return str(job.error.get("message"))
    return f"{job.progress} ({job.step} of {job.steps})" if job.step else job.progress or ""
