"""The report of a study: a function of the results that there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from training.studies.cell import Cell
from training.studies.page import Page
from training.studies.results import RESULTS, write_results
from training.studies.study import Result, Scale, Study
from training.studies.verdicts import answer

_NAMED = 6  # missing cells are named up to so many, and counted beyond


def write_report(study: Study, scale: Scale, cells: Sequence[Cell], results: Sequence[Result], folder: Path) -> None:
    """Write `README.md`, a CSV for each table, an SVG for each figure, and the results themselves (`results.jsonl`).

    Args:
        study: The study.
        scale: At which it was run.
        cells: All cells of its grid.
        results: Results of those that are done.
        folder: Where to write; made if it is not there.
    """
    page = Page()
    page.heading(study.title, 1)
    page.text_block(f"After: {study.source}. Scale: {scale}. Made by `candor-train study {study.name}`.")
    page.heading("What was done")
    done = {result["cell"]["key"] for result in results}
    missing = [cell.key for cell in cells if cell.key not in done]
    if missing:
        page.text_block(
            f"**Unfinished: {len(results)} of {len(cells)} cells are done.** Tables hold those alone. "
            f"Not done: {_told(missing)}."
        )
    else:
        page.text_block(f"All {len(cells)} cells are done.")
    if scale == "small":
        page.text_block("Reduced, against the source:")
        page.points(study.reduced)
    if results:
        page.text_block(_how(results))
        answer(page, study.question, study.report(results, page))
    page.write(folder)
    write_results(folder / RESULTS, results)


def _told(missing: Sequence[str]) -> str:
    """Cells that are not done: by name where they are few, else counted by network and loss."""
    if len(missing) <= _NAMED:
        return ", ".join(missing)
    counts = Counter(key.partition("@")[0].partition("=")[0] for key in missing)
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def _how(results: Sequence[Result]) -> str:
    seconds = sum(result["seconds"]["training"] for result in results)
    threads = sorted({result["machine"]["threads"] for result in results})
    versions = sorted(
        {f"torch {result['versions']['torch']}, numpy {result['versions']['numpy']}" for result in results}
    )
    return (
        f"{seconds / 60:.0f} minutes of training in all, {' or '.join(map(str, threads))} "
        f"thread{'' if threads == [1] else 's'} a cell on "
        f"{' and '.join(sorted({result['machine']['platform'] for result in results}))}, {'; '.join(versions)}. "
        f"Every cell's numbers are in [{RESULTS}]({RESULTS}); `--from` takes them up again."
    )
