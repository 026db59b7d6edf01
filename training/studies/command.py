"""`candor-train study`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from training.config import choose
from training.errors import ConfigurationError
from training.studies.cell import Cell
from training.studies.grid import Grid
from training.studies.registry import STUDIES
from training.studies.results import read_results
from training.studies.study import Scale
from training.studies.workers import run, shown
from training.studies.write_report import write_report


@dataclass(frozen=True)
class Asked:
    """What was asked of a study; see the options of `candor-train study`."""

    name: str
    data: Path | None
    out: Path
    scale: Scale
    seeds: int | None
    only: str
    workers: int
    report: Path | None
    finished: Path | None
    listed: bool
    no_run: bool
    retry: bool


def study(asked: Asked, write: Callable[[str], None]) -> bool:
    """Run what is left of a study, and report on what is done.

    Args:
        asked: What was asked.
        write: Gets a line for standard output now and then.

    Returns:
        Whether every cell that was asked for is done.

    Raises:
        ConfigurationError: An unknown name, a damaged result, or a folder of another configuration.
    """
    found = choose("study", STUDIES, asked.name)
    if asked.seeds is not None and asked.seeds < 1:
        raise ConfigurationError(f"seeds is {asked.seeds}, expected at least 1")
    if asked.workers < 1:
        raise ConfigurationError(f"workers is {asked.workers}, expected at least 1")
    cells = found.cells(asked.scale, asked.seeds)
    chosen = [cell for cell in cells if asked.only in cell.key]
    if not chosen:
        raise ConfigurationError(f"no cell of {asked.name} has {asked.only!r} in its key; --list shows them")
    grid = Grid(cells, asked.out, asked.data)
    grid.check()
    if asked.finished is not None:
        write(f"{grid.take(read_results(asked.finished))} finished cells taken from {asked.finished}")
    if asked.listed:
        _list(grid, chosen)
        return True
    work = Grid(chosen, asked.out, asked.data)
    ended = True
    if not asked.no_run:
        if asked.retry:
            work.forget_failures()
        with shown(asked.name, work) as tell:
            ended = run(work, asked.workers, tell)
    if asked.report is not None:
        write_report(found, asked.scale, cells, grid.results(), asked.report)
        write(f"{asked.report / 'README.md'}")
    states = [work.state(cell) for cell in chosen]
    write(f"{states.count('done')} of {len(states)} cells done, {states.count('failed')} failed")
    return ended and (asked.no_run or all(state == "done" for state in states))


def _list(grid: Grid, cells: Sequence[Cell]) -> None:
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for heading in ("cell", "state", "model", "loss", "epochs"):
        table.add_column(heading, no_wrap=heading == "cell")
    for cell in cells:
        config = cell.config
        table.add_row(cell.key, grid.state(cell), config.model, config.loss, str(config.epochs))
    Console().print(table)
