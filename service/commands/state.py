"""`candor state`: the state of a service as a whole."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from service.commands.local import DatabaseUrl, settings_of
from service.commands.output import complaints, console, print_json, reporting

app = typer.Typer(no_args_is_help=True, help="Update the state of a service, or move it to another database.")


@app.command()
def migrate(
    days: Annotated[int, typer.Option(min=1, max=366, help="Number of days to make PostgreSQL's partitions for.")] = 3,
    database_url: DatabaseUrl = None,
) -> None:
    """Create the state, or update its schema, and make PostgreSQL's next partitions.

    Needed if the services' database role may not do this: run it as the owner of the tables, before an update and
    once a day.
    """
    from service.state import migrating
    from service.state.database import Database
    from service.state.expiry import cover_ahead

    with (
        reporting(),
        closing(Database.open(settings_of({"database_url": database_url}).state_url)) as database,
    ):
        if database.engine.dialect.name == "postgresql":
            cover_ahead(database, days)
        console.print(f"The state has schema {migrating.newest()}.")


@app.command()
def copy(
    source: Annotated[str, typer.Argument(help="URL of the state, such as sqlite:////var/lib/candor/state.db.")],
    target: Annotated[str, typer.Argument(help="URL of an empty database: postgresql://user@host/name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON, for scripts.")] = False,
) -> None:
    """Copy a whole state to an empty database, from SQLite to PostgreSQL or back.

    Stop every service on it first. Either all rows arrive and are compared, or none. CANDOR_DATABASE_PASSWORD_FILE
    holds the password of PostgreSQL.
    """
    with reporting():
        from service.state.copying import StateCopy

        settings = settings_of({})
        source, target = (url if url.startswith("sqlite") else settings.with_password(url) for url in (source, target))
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with (
            StateCopy(source, target) as copying,
            Progress(*columns, console=complaints, transient=True, disable=not complaints.is_terminal) as progress,
        ):
            task = progress.add_task("", total=2 * copying.rows)
            rows = copying.run(lambda table, done: progress.update(task, description=table, advance=done))
    if as_json:
        print_json({"rows": rows})
        return
    console.print(f"Copied {sum(rows.values()):,} rows of {len(rows)} tables. Both states have the same digests.")
    console.print("Start the services with the new CANDOR_DATABASE_URL, and none on the old state.")
