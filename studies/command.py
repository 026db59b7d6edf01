"""`candor-train study`: run a study, list its cells, report on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from studies.cell import Cell
from studies.declared import ENDINGS, declared
from studies.grid import Grid
from studies.registry import STUDIES
from studies.results import RESULTS, read_results, write_results
from studies.study import Scale
from studies.workers import run, shown
from studies.write_report import write_report
from training.config import choose
from training.console import FAILED, reported_errors
from training.errors import ConfigurationError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def study(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(STUDIES)}; or a grid of your own, a .yaml file.")
    ],
    data: Annotated[Path | None, typer.Option(help="Folder of data sets. Default: CANDOR_DATA.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of studies; each cell has the folder OUT/NAME/CELL.")] = Path(
        "var/studies"
    ),
    scale: Annotated[
        Scale,
        typer.Option(
            help="`small` runs on two cores; `full` is as close to the published experiment as its description allows."
        ),
    ] = "small",
    seeds: Annotated[int | None, typer.Option(help="Seeds of each network. Default: depends on the scale.")] = None,
    only: Annotated[str, typer.Option(help="Run only cells whose key contains this text.")] = "",
    workers: Annotated[int, typer.Option(help="Number of parallel processes.")] = 1,
    report: Annotated[Path | None, typer.Option(help="Folder to write a report of all finished cells to.")] = None,
    finished: Annotated[
        Path | None, typer.Option("--from", help=f"A {RESULTS}, or its folder, to take finished cells from.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the cells and their state; run nothing.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing; only report on finished cells.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed cells again.")] = False,
) -> None:
    """Repeat a published comparison: train a grid of networks, each cell resumable, and report on it."""
    with reported_errors(left="the same command continues with the cells that have not finished"):
        chosen = declared(Path(name)) if name.endswith(ENDINGS) else choose("study", STUDIES, name)
        name = chosen.name
        for setting, value in (("seeds", seeds), ("workers", workers)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{setting} is {value}, expected at least 1")
        cells = chosen.cells(scale, seeds)
        wanted = [cell for cell in cells if only in cell.key]
        if not wanted:
            raise ConfigurationError(f"no cell of {name} has {only!r} in its key; --list shows them")
        grid = Grid(cells, out, data)
        grid.check()
        if finished is not None:
            typer.echo(f"{grid.take(read_results(finished))} finished cells taken from {finished}")
        if listed:
            _list(grid, wanted)
            return
        work, ended = Grid(wanted, out, data), True
        if not no_run:
            if retry:
                work.forget_failures()
            with shown(name, work) as tell:
                ended = run(work, workers, tell)
        if report is not None:
            write_report(chosen, scale, cells, grid.results(), report)
            write_results(out / name / RESULTS, grid.results())
            typer.echo(report / "README.md")
        states = [work.state(cell) for cell in wanted]
        elsewhere = len(states) - states.count("done") - states.count("failed")
        more = f", {elsewhere} left to other workers" if elsewhere and ended and not no_run else ""
        typer.echo(f"{states.count('done')} of {len(states)} cells done, {states.count('failed')} failed{more}")
        if not ended or (not no_run and states.count("done") < len(states)):
            raise typer.Exit(FAILED)


def _list(grid: Grid, cells: Sequence[Cell]) -> None:
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for heading in ("cell", "state", "model", "loss", "epochs"):
        table.add_column(heading, no_wrap=heading == "cell")
    for cell in cells:
        config = cell.config
        table.add_row(cell.key, grid.state(cell), config.model, config.loss, str(config.epochs))
    Console().print(table)
