"""Working through the cells of a grid: each once, whoever works on it, whatever was done before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from calibrators import CalibrationError
from training.errors import ConfigurationError, TrainingError
from training.loop import Epoch
from training.studies.cell import Cell, serves
from training.studies.claims import HEARTBEAT_S, STALE_S, Claim, LostClaimError, claim
from training.studies.results import FAILURE, check_same, read_result, write_json, write_result
from training.studies.run_cell import CHECKPOINT, prepare, run_cell

State = Literal["done", "failed", "begun", "to do"]
Event = Literal["epoch", "done", "failed"]


@dataclass(frozen=True)
class Grid:
    """Cells, and where they lie.

    Attributes:
        cells: The cells, in the order in which they are to be done.
        out: Folder of studies; a cell's folder is `<out>/<study>/<key>`.
        data: Folder of data sets; None for the one that CANDOR_DATA names.
        stale_s: Seconds after which the claim of a worker that nobody hears of may be taken over.
        heartbeat_s: Seconds between a worker's signs of life.
    """

    cells: Sequence[Cell]
    out: Path
    data: Path | None = None
    stale_s: float = STALE_S
    heartbeat_s: float = HEARTBEAT_S

    def state(self, cell: Cell) -> State:
        """How far a cell is.

        Raises:
            ConfigurationError: Its result is damaged, or another cell's.
        """
        folder = cell.folder(self.out)
        if read_result(cell, self.out) is not None:
            return "done"
        if (folder / FAILURE).exists():
            return "failed"
        return "begun" if (folder / CHECKPOINT).exists() else "to do"

    def results(self) -> list[dict[str, Any]]:
        """Results of the cells that are done, in the grid's order."""
        found = (read_result(cell, self.out) for cell in self.cells)
        return [result for result in found if result is not None]

    def check(self) -> None:
        """Refuse a folder in which another configuration lies, before anything is done.

        Raises:
            ConfigurationError: There is one; or two cells have one name.
        """
        keys = [cell.key for cell in self.cells]
        if len(set(keys)) != len(keys):
            raise ConfigurationError("two cells of the grid have the same key")
        for cell in self.cells:
            if cell.folder(self.out).exists():
                prepare(cell, self.out)
            self.state(cell)

    def forget_failures(self) -> None:
        """Let cells that failed be tried again."""
        for cell in self.cells:
            (cell.folder(self.out) / FAILURE).unlink(missing_ok=True)

    def take(self, finished: Mapping[str, Mapping[str, Any]]) -> int:
        """Take over results of cells that were finished elsewhere, where there are none yet.

        A cell of another name, or of another study, is as good where its configuration is the same and no less was
        measured.

        Args:
            finished: Results by cell key, as `training.studies.results.read_results` gives them.

        Returns:
            How many were taken.

        Raises:
            ConfigurationError: A result of this study is of another configuration than the cell of its name.
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
    """Do what is left of a grid, as one worker of perhaps several.

    A cell whose configuration cannot work, or whose loss diverges, is recorded with its reason; the others go on.

    Args:
        grid: The grid.
        tell: Called with what happened, the cell's key, and a few words.

    Returns:
        How many cells this worker finished.
    """
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
    """Train and measure a cell that is claimed; whether it is finished now."""

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
