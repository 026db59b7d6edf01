"""What a study is: cells to be run, and a report of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from training.studies.cell import Cell
from training.studies.page import Page
from training.studies.verdicts import Question

Scale = Literal["small", "full"]
SCALES: tuple[Scale, ...] = ("small", "full")
Result = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """A comparison of the sources, to be repeated.

    Attributes:
        name: Its name on the command line.
        title: What it compares, in a line.
        source: Which document it repeats.
        question: What that document asks.
        cells: From a scale and a number of seeds (None for the source's own, or what the scale allows) to the grid, the
            cells that tell most first.
        reduced: What the small scale leaves out of the source's experiment, a sentence each.
        report: Puts tables, diagrams and findings of some results on a page, and gives the source's claims with the
            comparisons that speak to them.
    """

    name: str
    title: str
    source: str
    question: str
    cells: Callable[[Scale, int | None], list[Cell]]
    reduced: Sequence[str]
    report: Callable[[Sequence[Result], Page], Sequence[Question]]
