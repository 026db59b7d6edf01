"""Several workers on one machine, and their progress."""

from __future__ import annotations

import multiprocessing
import queue
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from studies.grid import Event, Grid, work

Tell = Callable[[Event, str, str], None]
_WAIT_S = 0.2
_BETWEEN_LINES_S = 20.0


def run(grid: Grid, workers: int, tell: Tell) -> bool:
    """Run a grid with some processes; a single worker runs in this process.

    Args:
        grid: The grid.
        workers: Number of processes, at least 1.
        tell: Called in this process with the event, the cell's key, and a few words.

    Returns:
        Whether every worker finished; the cells of a killed worker are left for the next run.
    """
    if workers == 1:
        work(grid, tell)
        return True
    context = multiprocessing.get_context("spawn")
    events: Any = context.Queue()
    processes: list[BaseProcess] = [
        context.Process(target=_work, args=(grid, events), name=f"worker {number + 1}") for number in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        while any(process.is_alive() for process in processes):
            _pass_on(events, tell)
        _pass_on(events, tell)
    finally:
        # Ctrl-C reaches the workers too: they give their cells back and end. Otherwise they are done.
        _end(processes)
    return all(process.exitcode == 0 for process in processes)


@contextmanager
def shown(title: str, grid: Grid, *, quiet: bool = False) -> Iterator[Tell]:
    """Show the workers' progress on standard error: a bar on a terminal, otherwise a line per cell and every 20 s.

    Args:
        title: Name of the study.
        grid: Its cells.
        quiet: Whether to show nothing.
    """
    console = Console(stderr=True, quiet=quiet, emoji=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    bar, told_at = sys.stderr.isatty(), time.monotonic()
    with Progress(*columns, console=console, disable=quiet or not bar) as progress:
        over = sum(grid.state(cell) == "done" for cell in grid.cells)
        task = progress.add_task(title, total=len(grid.cells), completed=over, now="")

        def tell(event: Event, key: str, words: str) -> None:
            nonlocal told_at
            if event == "epoch":
                progress.update(task, now=f"{key}: {words}")
                if not bar and time.monotonic() - told_at >= _BETWEEN_LINES_S:
                    told_at = time.monotonic()
                    console.print(f"running {key}  {words}", highlight=False, soft_wrap=True)
                return
            progress.advance(task, event != "lost")
            style = "green" if event == "done" else "bold red"
            progress.console.print(f"[{style}]{event}[/] {key}  {words}", highlight=False, soft_wrap=True)

        yield tell


def _work(grid: Grid, events: Any) -> None:
    def tell(event: Event, key: str, words: str) -> None:
        events.put((event, key, words))

    try:
        work(grid, tell)
    except KeyboardInterrupt:
        sys.exit(1)


def _pass_on(events: Any, tell: Tell) -> None:
    try:
        while True:
            tell(*events.get(timeout=_WAIT_S))
    except queue.Empty:
        return


def _end(processes: list[BaseProcess]) -> None:
    deadline = time.monotonic() + 30.0
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.terminate()
            process.join()
