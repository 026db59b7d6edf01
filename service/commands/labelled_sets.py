"""`candor labelled-sets`: upload labelled rows to recalibrate on, list them, delete them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from candor import DEFAULT_URL, Client
from candor.contract.labelled_sets import LabelledSet
from service.commands.output import console, print_json, reporting, whole_column
from service.commands.recalibration import Represents
from service.commands.remote import AsJson, Key, Model, Url

app = typer.Typer(no_args_is_help=True, help="Upload labelled rows to recalibrate on, list them, delete them.")


@app.command()
def upload(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="An .npz, .parquet, .csv or .ndjson file of rows.")
    ],
    represents: Represents = None,
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Upload a file of labelled rows; the same bytes again are the same set."""
    with reporting(), Client(url, api_key=api_key, model=model) as client, console.status("uploading …"):
        found = client.upload_labelled_set(file, represents="traffic" if represents else None)
    _print(found, as_json=as_json)


@app.command("list")
def list_sets(url: Url = DEFAULT_URL, api_key: Key = None, model: Model = None, as_json: AsJson = False) -> None:
    """List the labelled sets of a model, newest first."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        found = client.labelled_sets()
    if as_json:
        print_json([one.document for one in found])
        return
    table = Table(
        whole_column("set"), "rows", "of", "represents", "by", whole_column("created"), box=None, pad_edge=False
    )
    for one in found:
        cells = (one.id, f"{one.rows:,}", one.kind, one.represents or "—", one.by, one.created_at[:19])
        table.add_row(*map(escape, cells))
    console.print(table)


@app.command()
def delete(
    labelled_set: Annotated[str, typer.Argument(help="Set to delete, such as ls1.")],
    url: Url = DEFAULT_URL,
    api_key: Key = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Delete a labelled set, unless a job is about to read it. Looks at its rows stay counted."""
    with reporting(), Client(url, api_key=api_key, model=model) as client:
        found = client.delete_labelled_set(labelled_set)
    _print(found, as_json=as_json)


def _print(found: LabelledSet, *, as_json: bool) -> None:
    if as_json:
        print_json(found.document)
        return
    of = "" if found.represents is None else f", declared to represent the {found.represents}"
    console.print(f"{found.id}: {found.rows:,} rows of {found.kind}{of}")
