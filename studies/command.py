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
from studies.plan import PLAN, plan
from studies.power import HEADER
from studies.ray_workers import run_on_ray
from studies.registry import STUDIES
from studies.release import read_release, write_release
from studies.results import RESULTS, read_results, write_results
from studies.study import Scale
from studies.workers import run, shown
from studies.write_report import known_power, write_report
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
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of parallel processes; with `--ray`, maximum cells at a time. Default: 1; with `--ray`, as "
            "many as the cluster has room for."
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Ray cluster that runs the cells, HOST:PORT, or `auto` for the one of this machine. Every node must "
            "reach OUT, the data sets and the checkout.",
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder to write a report of all finished cells to.")] = None,
    finished: Annotated[
        Path | None,
        typer.Option("--from", help=f"A {RESULTS}, its folder, or a file of --logits, to take finished cells from."),
    ] = None,
    logits: Annotated[
        Path | None,
        typer.Option(help="File (.npz) to write the raw outputs of all finished cells to, for others to recompute."),
    ] = None,
    power: Annotated[
        bool, typer.Option("--power", help="Print power of each comparison and the cells left; run nothing.")
    ] = False,
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
            known = read_release(finished, cells) if finished.suffix == ".npz" else read_results(finished)
            typer.echo(f"{grid.take(known)} finished cells taken from {finished}")
        if listed:
            _list(grid, wanted)
            return
        if power:
            stated = known_power(chosen, grid)
            if stated:
                _print(HEADER, stated)
            else:
                typer.echo("Power is not known: it needs finished cells of at least three seeds, or a stored report.")
            _print(PLAN, plan(wanted, grid))
            return
        work, ended = Grid(wanted, out, data), True
        if not no_run:
            if retry:
                work.forget_failures()
            with shown(name, work) as tell:
                ended = run(work, workers or 1, tell) if ray is None else run_on_ray(ray, work, workers, tell)
        if report is not None:
            write_report(chosen, scale, cells, grid.results(), report)
            write_results(out / name / RESULTS, grid.results())
            typer.echo(report / "README.md")
        if logits is not None:
            written, missing = write_release(grid, logits)
            typer.echo(f"{logits}: {written} cells" + (f"; {missing} cells were finished elsewhere" if missing else ""))
        states = [work.state(cell) for cell in wanted]
        elsewhere = len(states) - states.count("done") - states.count("failed")
        more = f", {elsewhere} left to other workers" if elsewhere and ended and not no_run else ""
        typer.echo(f"{states.count('done')} of {len(states)} cells done, {states.count('failed')} failed{more}")
        if not ended or (not no_run and states.count("done") < len(states)):
            raise typer.Exit(FAILED)


_WIDEST_NUMBER, _UNLIMITED = 8, 10_000


def _print(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for place, heading in enumerate(header):
        widest = max((len(row[place]) for row in rows), default=0)
        # Numbers stay whole however narrow the terminal is; headings and long texts take several lines.
        table.add_column(heading, overflow="fold", min_width=min(widest, _WIDEST_NUMBER) if place else None)
    for row in rows:
        table.add_row(*row)
    console = Console(emoji=False)
    (console if console.is_terminal else Console(width=_UNLIMITED, emoji=False)).print(table)


def _list(grid: Grid, cells: Sequence[Cell]) -> None:
    configs = [(cell, cell.config) for cell in cells]
    rows = [(cell.key, grid.state(cell), config.model, config.loss, str(config.epochs)) for cell, config in configs]
    _print(("cell", "state", "model", "loss", "epochs"), rows)
