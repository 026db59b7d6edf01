"""Measure every package at every row, in turns; finished turns are kept in a file, so an interrupted run continues."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.packages import PACKAGES
from benchmarks.side_by_side.rows import Row

ROOT = Path(__file__).resolve().parents[2]
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
# A package with longer calls, in milliseconds, has one turn.
LONG = 10_000.0
_FAILED = "failed: "


@dataclass
class Cell:
    """Results of one package at one row, in one variant of its settings.

    Attributes:
        turns: Milliseconds of the fastest call of each turn.
        nll: Mean NLL of the fit on the fitted rows.
        value: Value of the metric.
        other: How the job differs from the row's, if it does.
        missing: Why the time is missing.
    """

    turns: list[float] = field(default_factory=list)
    nll: float | None = None
    value: float | None = None
    other: str = ""
    missing: str = ""

    @property
    def milliseconds(self) -> float:
        """The fastest of all calls, or infinity."""
        return min(self.turns, default=math.inf)

    def finished(self, rounds: int) -> bool:
        """Return whether it needs no more turns."""
        return bool(self.missing) or len(self.turns) >= rounds or (bool(self.turns) and self.milliseconds > LONG)


Cells = dict[str, Cell]
"""Cells by `cell_key`."""


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes:
        rounds: Turns of each package at each row.
        seconds: Approximate length of a turn.
        limit: Maximum seconds of a turn, with the start of the process and the preparation.
        clock: ``"wall"``, or ``"processor"`` for CPU time, which other work on the machine disturbs less.
        threads: Threads of each package.
    """

    rounds: int
    seconds: float
    limit: float
    clock: str
    threads: int = 1


def cell_key(row: Row, package: str, variant: str) -> str:
    return f"{row.key}|{package}|{variant}"


def load(path: Path | None) -> Cells:
    """Read the cells of an earlier run; failed ones are tried again."""
    if path is None or not path.exists():
        return {}
    cells = {key: Cell(**kept) for key, kept in json.loads(path.read_text(encoding="utf-8")).items()}
    return {key: cell for key, cell in cells.items() if not cell.missing.startswith(_FAILED)}


def run(
    rows: Sequence[Row], pythons: Mapping[str, Path], folder: Path, options: Options, cells: Cells, kept: Path | None
) -> None:
    """Add turns to the cells until each has enough."""
    for number in range(1, options.rounds + 1):
        for row in rows:
            for package, python in pythons.items():
                for variant in PACKAGES[package].variants(row.job, row.data):
                    cell = cells.setdefault(cell_key(row, package, variant), Cell())
                    if cell.finished(number):
                        continue
                    print(f"turn {number}: {row.key} by {package} {variant}", file=sys.stderr)
                    take_turn(cell, [str(python), package, row.key, variant], folder, options)
                    if kept is not None:
                        kept.write_text(json.dumps({k: asdict(c) for k, c in cells.items()}, indent=1), "utf-8")


def environment_of(threads: int) -> dict[str, str]:
    """Return the environment of a process that uses so many threads."""
    return {**os.environ, **dict.fromkeys(_LIMITS, str(threads)), "PYTHONPATH": ""}


def take_turn(cell: Cell, who: Sequence[str], folder: Path, options: Options) -> None:
    python, *task = who
    command = [python, "-m", "benchmarks.side_by_side.worker", *task, str(folder), str(options.seconds), options.clock]
    environment = environment_of(options.threads)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=options.limit, env=environment, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        cell.missing = f"> {options.limit:,.0f} s"
        return
    except subprocess.CalledProcessError as error:
        cell.missing = _FAILED + (error.stderr.strip().splitlines() or ["?"])[-1][:100]
        return
    answer = json.loads(done.stdout.splitlines()[-1])
    cell.turns.append(answer["milliseconds"])
    cell.nll, cell.value, cell.other = answer["nll"], answer["value"], answer["other"]
