"""The commands of recalibration jobs: list, show, cancel, propose."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from candor.contract.jobs import Job, JobState
from service.commands.output import console, print_json, print_line, reporting, whole_column
from service.commands.remote import AsJson, Key, Model, Url

app = typer.Typer(no_args_is_help=True, help="List, follow and cancel recalibration jobs.")

Id = Annotated[str, typer.Argument(help="The job, such as j12.")]


@app.command("list")
def list_jobs(
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Maximum number of jobs.")] = 20,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """List recalibration jobs, newest first."""
    with reporting(), Client(url, api_key=api_key) as client:
        page = client.jobs(model=model, state=state, limit=limit)
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
    """Show one job in full."""
    with reporting(), Client(url, api_key=api_key) as client:
        print_json(client.job(job).document)


@app.command("cancel")
def cancel(job: Id, url: Url = DEFAULT_URL, api_key: Key = None, as_json: AsJson = False) -> None:
    """Cancel a job that waits or runs. Looks that it has used stay used."""
    with reporting(), Client(url, api_key=api_key) as client:
        ended = client.cancel(job)
    print_line(ended, f"{ended.job}: {ended.summary or ended.state}", as_json)


@app.command("propose")
def propose(job: Id, url: Url = DEFAULT_URL, api_key: Key = None, as_json: AsJson = False) -> None:
    """Keep the result of a dry run as a proposal, without another look."""
    with reporting(), Client(url, api_key=api_key) as client:
        kept = client.propose_job(job)
    print_line(kept, f"revision {kept.revision}: {kept.state}. {kept.summary}", as_json)


def what(job: Job) -> str:
    """Return the progress of a job, or its outcome, in words."""
    if job.summary:
        return job.summary
    if job.error:
        return job.error.message
    return f"{job.progress} ({job.step} of {job.steps})" if job.step else job.progress or ""
