"""Working through the cells of a grid, each exactly once, with any number of workers and interruptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from calibrators import CalibrationError
from studies.cell import Cell, serves
from studies.claims import HEARTBEAT_S, STALE_S, Claim, LostClaimError, claim, silent
from studies.results import FAILURE, check_same, read_result, write_json, write_result
from studies.run_cell import CHECKPOINT, prepare, run_cell
from training.epochs import Epoch
from training.errors import ConfigurationError, TrainingError

State = Literal["done", "failed", "begun", "to do"]
Event = Literal["epoch", "done", "failed", "lost"]


@dataclass(frozen=True)
class Grid:
    """Cells and their folders.

    Attributes:
        cells: The cells, in the order in which to run them.
        out: Folder of studies; a cell's folder is `<out>/<study>/<key>`.
        data: Folder of data sets; None for CANDOR_DATA.
        stale_s: Seconds after which a silent worker's claim may be taken over.
        heartbeat_s: Seconds between a worker's signs of life.
    """

    cells: Sequence[Cell]
    out: Path
    data: Path | None = None
    stale_s: float = STALE_S
    heartbeat_s: float = HEARTBEAT_S

    def state(self, cell: Cell) -> State:
        """Return a cell's state; raises ConfigurationError if its result is damaged or another cell's."""
        folder = cell.folder(self.out)
        if read_result(cell, self.out) is not None:
            return "done"
        if (folder / FAILURE).exists():
            return "failed"
        return "begun" if (folder / CHECKPOINT).exists() else "to do"

    def results(self) -> list[dict[str, Any]]:
        """Return the results of finished cells, in the grid's order."""
        found = (read_result(cell, self.out) for cell in self.cells)
        return [result for result in found if result is not None]

    def check(self) -> None:
        """Raise ConfigurationError if a folder holds another configuration, or if two cells have the same key."""
        keys = [cell.key for cell in self.cells]
        if len(set(keys)) != len(keys):
            raise ConfigurationError("two cells of the grid have the same key")
        for cell in self.cells:
            if cell.folder(self.out).exists():
                prepare(cell, self.out)
            self.state(cell)

    def forget_failures(self) -> None:
        """Let failed cells run again."""
        for cell in self.cells:
            (cell.folder(self.out) / FAILURE).unlink(missing_ok=True)

    def take(self, finished: Mapping[str, Mapping[str, Any]]) -> int:
        """Take over results of cells finished elsewhere, for cells without a result.

        A result of another cell or study is accepted if its configuration is the same and it measured at least as much.

        Args:
            finished: Results by cell key, from `studies.results.read_results`.

        Returns:
            Number of results taken.

        Raises:
            ConfigurationError: A result of this study has another configuration than the cell with its key.
        """
        taken = 0
        for cell in self.cells:
            result = finished.get(cell.key)
            if result is None or result["cell"].get("study") != cell.study:
                result = next((other for other in finished.values() if serves(cell, other["cell"])), None)
            else:
                check_same(cell, result["cell"], Path(cell.key))
            if result is None or read_result(cell, self.out) is not None:
                continue
            prepare(cell, self.out)
            write_result(
                cell, self.out, {name: part for name, part in result.items() if name not in ("schema", "cell")}
            )
            taken += 1
        return taken


def work(grid: Grid, tell: Callable[[Event, str, str], None]) -> int:
    """Run the remaining cells of a grid, as one of possibly several workers.

    A cell that fails, for example because its loss diverges, is recorded with the reason; the others continue. Cells of
    workers that fell silent are waited for; those of living workers are left to them.

    Args:
        grid: The grid.
        tell: Called with the event, the cell's key, and a few words.

    Returns:
        Number of cells that this worker finished.
    """
    done = _pass(grid, tell)
    while any(_is_silent(cell, grid) for cell in grid.cells):
        time.sleep(grid.heartbeat_s)
        done += _pass(grid, tell)
    return done


def _is_silent(cell: Cell, grid: Grid) -> bool:
    return grid.state(cell) not in ("done", "failed") and silent(cell.folder(grid.out), grid.heartbeat_s)


def _pass(grid: Grid, tell: Callable[[Event, str, str], None]) -> int:
    """Run each remaining cell that no other worker has; return the number of those finished."""
    done = 0
    for cell in grid.cells:
        if grid.state(cell) in ("done", "failed"):
            continue
        prepare(cell, grid.out)
        with claim(cell.folder(grid.out), stale_s=grid.stale_s, heartbeat_s=grid.heartbeat_s) as taken:
            if taken is None:
                continue
            if grid.state(cell) not in ("done", "failed"):  # another worker finished it meanwhile
                done += _do(cell, grid, taken, tell)
            else:
                taken.release(done=True)
    return done


def _do(cell: Cell, grid: Grid, taken: Claim, tell: Callable[[Event, str, str], None]) -> bool:
    """Train and measure a claimed cell; return whether it is finished."""

    def on_epoch(epoch: Epoch) -> None:
        taken.check()
        tell("epoch", cell.key, f"{epoch.number}/{epoch.of}, loss {epoch.loss:.4f}")

    try:
        result = run_cell(cell, grid.out, grid.data, on_epoch)
    except LostClaimError:
        return False
    except (TrainingError, CalibrationError, OSError, MemoryError, RuntimeError, ValueError) as error:
        reason = {"cell": cell.document(), "error": type(error).__name__, "reason": str(error)}
        write_json(cell.folder(grid.out) / FAILURE, reason)
        tell("failed", cell.key, f"{type(error).__name__}: {error}")
        taken.release(done=True)
        return False
    plain, scaled = (result["test"][name]["ece"] for name in ("none", "temperature"))
    tell("done", cell.key, f"accuracy {result['test']['none']['accuracy']:.2%}, ECE {plain:.2%} → {scaled:.2%}")
    taken.release(done=True)
    return True
