"""The parts of a study: cells to run and a report of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from studies.cell import Cell
from studies.page import Page
from studies.verdicts import Question

Scale = Literal["small", "full"]
Result = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """A published comparison to repeat.

    Attributes:
        name: Name on the command line.
        title: What it compares, in one line.
        source: The document that it repeats.
        question: The question of that document.
        cells: Makes the grid from a scale and a number of seeds (None for the default), most informative cells first.
        reduced: Reductions of the small scale, one sentence each.
        report: Adds tables, figures and findings to a page; returns the source's claims with their comparisons.
        file: The YAML file that declares it; None for a built-in study.
    """

    name: str
    title: str
    source: str
    question: str
    cells: Callable[[Scale, int | None], list[Cell]]
    reduced: Sequence[str]
    report: Callable[[Sequence[Result], Page], Sequence[Question]]
    file: str | None = None
