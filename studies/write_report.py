"""The report of a study: a function of its results."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from studies.cell import Cell
from studies.grid import Grid
from studies.page import Page
from studies.power import EXPLAINED, HEADER, NAME, power_table
from studies.results import RESULTS
from studies.study import Result, Scale, Study
from studies.verdicts import answer

REPORTS = Path(__file__).parents[1] / "docs" / "explanation" / "studies"
_NAMED = 6  # up to this number missing cells are named, above it they are counted


def write_report(study: Study, scale: Scale, cells: Sequence[Cell], results: Sequence[Result], folder: Path) -> None:
    """Write `README.md`, a CSV for each table and an SVG for each figure.

    Args:
        study: The study.
        scale: Its scale.
        cells: All cells of its grid.
        results: Results of the finished cells.
        folder: Folder to write to; created if missing.
    """
    page = Page()
    page.heading(study.title, 1)
    page.text_block(f"After: {study.source}. Scale: {scale}.")
    page.text_block(
        f"`candor-train study {study.file or study.name} --scale {scale} --report FOLDER` writes this page, its tables "
        "and figures. "
        f"The numbers of each cell stay in `var/studies/{study.name}/{RESULTS}`; `--from` reads them."
    )
    page.heading("What was done")
    done = {result["cell"]["key"] for result in results}
    missing = [cell.key for cell in cells if cell.key not in done]
    if missing:
        page.text_block(
            f"**Unfinished: {len(results)} of {len(cells)} cells are done.** The tables cover only those. "
            f"Not done: {_told(missing)}."
        )
    else:
        page.text_block(f"All {len(cells)} cells are done.")
    if scale == "small" and study.reduced:
        page.text_block("Reductions compared with the source:")
        page.points(study.reduced)
    if results:
        page.text_block(_how(results))
        questions = study.report(results, page)
        answer(page, study.question, questions)
        page.heading("Power", 3)
        page.text_block(EXPLAINED)
        page.table(NAME, HEADER, power_table(questions))
    page.write(folder)


def known_power(study: Study, grid: Grid) -> list[list[str]]:
    """Return the power of a study's comparisons by its finished cells; without any, as its stored report has it."""
    if results := grid.results():
        return power_table(study.report(results, Page()))
    stored = REPORTS / study.name / f"{NAME}.csv"
    if not stored.exists():
        return []
    with stored.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))[1:]


def _told(missing: Sequence[str]) -> str:
    """List unfinished cells: by name if there are few, otherwise counted by network and loss."""
    if len(missing) <= _NAMED:
        return ", ".join(missing)
    counts = Counter(key.partition("@")[0].partition("=")[0] for key in missing)
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def _threads(numbers: Sequence[int]) -> str:
    if not numbers:
        return "as many threads as possible"
    return f"{' or '.join(map(str, numbers))} thread{'' if numbers == [1] else 's'}"


def _how(results: Sequence[Result]) -> str:
    seconds = sum(result["seconds"]["training"] for result in results)
    threads = sorted({result["machine"]["threads"] for result in results} - {None})
    versions = sorted(
        {f"torch {result['versions']['torch']}, numpy {result['versions']['numpy']}" for result in results}
    )
    return (
        f"{seconds / 60:.0f} minutes of training in total, "
        f"{_threads(threads)} per cell on "
        f"{' and '.join(sorted({result['machine']['platform'] for result in results}))}, {'; '.join(versions)}."
    )
