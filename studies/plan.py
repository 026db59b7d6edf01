"""What is left of a study to run, and the processor time that it takes."""

from __future__ import annotations

from collections.abc import Sequence

from studies.cell import Cell
from studies.grid import Grid

PLAN = ("cells", "planned", "done", "processor minutes left")
_RESNET = "studies.networks:resnet"
SECONDS: dict[str, float] = {
    "text_cnn": 1.4,
    "lenet5": 0.15,
    "lenet5_padded": 0.3,
    "resnet20": 2.4,
    "resnet18": 21.7,
    "vgg16_bn": 9.0,
    "densenet121": 35.4,
    f"{_RESNET} depth=8 width=8": 0.6,
    f"{_RESNET} depth=8 width=16": 1.0,
    f"{_RESNET} depth=8 width=32": 2.7,
    f"{_RESNET} depth=20 width=16": 2.5,
    "studies.networks:convnet batch_norm=False": 1.4,
    "studies.networks:convnet batch_norm=True": 1.6,
}
"""Processor seconds for 1,000 training rows and one epoch on one core of a server; neighbours change them by half."""
_ROWS = {"cifar10": 50_000, "cifar10:bird,cat": 10_000, "newsgroups20": 15_997}
"""Rows outside the test part."""


def seconds(cell: Cell) -> float | None:
    """Return about how much processor time a cell's training takes; None where its network was not measured."""
    config = cell.config
    rate = SECONDS.get(" ".join([config.model, *(f"{name}={value}" for name, value in config.model_settings.items())]))
    held_out = (config.validation_rows or 0) + (config.reference_rows or 0)
    rows = config.train_rows or (config.rows or _ROWS.get(config.dataset, 0)) - held_out
    return None if rate is None or rows <= 0 else rate * rows / 1000 * config.epochs


def plan(cells: Sequence[Cell], grid: Grid) -> list[list[str]]:
    """Return a row for each group of cells, seeds together, in the order in which they run, and their sum."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.key.partition("@")[0], []).append(cell)
    rows: list[list[str]] = []
    total: float | None = 0.0
    for name, group in groups.items():
        left = [cell for cell in group if grid.state(cell) != "done"]
        times = [seconds(cell) for cell in left]
        time = None if None in times else sum(filter(None, times))
        total = None if total is None or time is None else total + time
        rows.append([name, str(len(group)), str(len(group) - len(left)), _minutes(time)])
    return [*rows, ["total", str(len(cells)), str(sum(int(row[2]) for row in rows)), _minutes(total)]]


def _minutes(time: float | None) -> str:
    return "unknown" if time is None else f"{time / 60:.0f}"
