"""What `candor-train` prints: errors with their exit codes, progress, and the report of a bundle."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import bundle
from training.epochs import Epoch, OnEpoch, OnStep, Step
from training.errors import ConfigurationError, TrainingError
from training.evaluate import PRECISION, recall_at

FAILED, USAGE, REFUSED, INTERRUPTED = 1, 2, 3, 130
_BETWEEN_LINES_S, _BETWEEN_STEPS_S = 5.0, 20.0


@contextmanager
def reported_errors(keep: Path | None = None, left: str = "no incomplete bundle was left behind") -> Iterator[None]:
    """Turn expected errors into one sentence and an exit code.

    Args:
        keep: Checkpoint file that an interrupted run continues from.
        left: What an interruption leaves where there is no checkpoint.
    """
    try:
        yield
    except ConfigurationError as error:
        fail(error, USAGE)
    except (TrainingError, OSError) as error:
        fail(error, FAILED)
    except bundle.BundleError as error:
        fail(error, REFUSED)
    except KeyboardInterrupt:
        continues = keep is not None and keep.exists()
        hint = f"the same command continues from {keep}" if continues else left
        fail(f"interrupted; {hint}", INTERRUPTED)


def complaints() -> Console:
    """Return the console for errors and warnings. It prints `:name:` as it is, not as an emoji."""
    return Console(stderr=True, emoji=False, highlight=False, soft_wrap=True)


def fail(message: object, code: int) -> NoReturn:
    """Print an error to standard error and exit with this code."""
    complaints().print(f"[bold red]error[/] {escape(str(message))}")
    raise typer.Exit(code)


@dataclass(frozen=True)
class Shown:
    """What shows a run's progress: functions to call after each epoch, and after each step."""

    epoch: OnEpoch
    step: OnStep


class _Lines(logging.Handler):
    """Prints what is logged, such as the reading of many files, as lines."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"{record.getMessage()}\n")


@contextmanager
def progress(title: str, epochs: int) -> Iterator[Shown]:
    """Show a progress bar on a terminal, elsewhere lines."""
    logger, lines = logging.getLogger("training"), _Lines()
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        with _shown(title, epochs) as shown:
            yield shown
    finally:
        logger.setLevel(level)
        logger.removeHandler(lines)


@contextmanager
def _shown(title: str, epochs: int) -> Iterator[Shown]:
    if not sys.stderr.isatty():
        yield _lines(title)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True, emoji=False)) as shown:
        task = shown.add_task(title, total=epochs, loss="…")
        yield Shown(
            lambda epoch: shown.update(task, completed=epoch.number, total=epoch.of, loss=_loss(epoch)),
            lambda step: shown.update(task, completed=step.epoch - 1 + step.number / step.steps, total=step.of),
        )


def _lines(title: str) -> Shown:
    """Return functions that print a line for an epoch or a step, at most every few seconds and for the last epoch."""
    said, began = -math.inf, time.monotonic()

    def told(line: str, since: float, *, last: bool = False) -> None:
        nonlocal said
        if time.monotonic() - said >= since or last:
            said = time.monotonic()
            sys.stderr.write(f"{title}: {line}\n")

    def on_epoch(epoch: Epoch) -> None:
        told(
            f"epoch {epoch.number} of {epoch.of}, loss {_loss(epoch)}", _BETWEEN_LINES_S, last=epoch.number == epoch.of
        )

    def on_step(step: Step) -> None:
        if time.monotonic() - began >= _BETWEEN_STEPS_S:
            done = f"epoch {step.epoch} of {step.of}, step {step.number:,} of {step.steps:,}"
            told(f"{done}, {step.rows:,.0f} rows/s", _BETWEEN_STEPS_S)

    return Shown(on_epoch, on_step)


def _loss(epoch: Epoch) -> str:
    found = epoch.validation
    if found is None:
        return f"{epoch.loss:.4f}" if math.isfinite(epoch.loss) else "not measured (no validation rows)"
    told = f"{epoch.loss:.4f}, validation accuracy {found.accuracy:.1%}"
    if math.isfinite(found.auroc):
        told += (
            f", AUROC {found.auroc:.3f}, average precision {found.average_precision:.3f}, recall "
            f"{found.recall_at_precision:.1%} at precision {PRECISION:.0%}"
        )
    return told


def show(path: Path, *, as_json: bool) -> None:
    """Verify a bundle and print its report, as tables or as one JSON document."""
    found = bundle.verify(path)
    if as_json:
        document = {"bundle": str(path), "id": found.id, "manifest": found.manifest.model_dump(mode="json")}
        sys.stdout.write(json.dumps(document | {"report": found.report}, ensure_ascii=False) + "\n")
        return
    report, manifest = found.report, found.manifest
    console = Console(emoji=False)
    console.print(f"[bold]{manifest.model} {manifest.version}[/bold], calibrator: {report['calibrator']['method']}")
    console.print(_table(f"{report['rows']['evaluated']} reference rows that it was not fitted on", report))
    if "test" in report:
        console.print(_table(f"{report['test']['rows']} rows outside the bundle", report["test"]))
    if positive := report.get("positive"):
        console.print(_of_class(positive))
    for note in report.get("training", {}).get("notes", ()):
        console.print(escape(note), highlight=False, soft_wrap=True)
    for problem in report.get("warnings", ()):
        complaints().print(f"[bold yellow]warning[/] {escape(problem)}")
    if unseen := report.get("training", {}).get("classes_without_rows"):
        complaints().print(
            f"[bold yellow]warning[/] no training rows for {escape(', '.join(unseen))}: the network cannot recognise "
            f"{'it' if len(unseen) == 1 else 'them'}"
        )
    console.print(f"{escape(str(path))}  verified, id {found.id[:12]}", highlight=False, soft_wrap=True)


def copy_report(found: bundle.Bundle, to: Path) -> None:
    """Write a bundle's `report.json` and its diagrams to a folder."""
    to.mkdir(parents=True, exist_ok=True)
    (to / "report.json").write_text(json.dumps(found.report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, svg in found.diagrams.items():
        (to / f"{name}.svg").write_bytes(svg)


def _of_class(positive: dict[str, Any]) -> Table:
    """Return how well a class is found, before and after calibration."""
    title = (
        f"{positive['label']}: {positive['positives']:,} of {positive['rows']:,} of these rows "
        f"({positive['base_rate']:.2%})"
    )
    table = Table(title=escape(title), title_justify="left", title_style="", show_edge=False, pad_edge=False)
    table.add_column()
    sides = [positive["before"], positive["after"]]
    for heading in ("before", "after"):
        table.add_column(heading, justify="right")
    for name, label in (("auroc", "AUROC"), ("average_precision", "average precision")):
        values = [side[name]["value"] for side in sides]
        table.add_row(label, *("—" if value is None else f"{value:.4f}" for value in values))
    for precision in (0.5, 0.8, 0.9) if positive["positives"] else ():
        cells = [f"{recall_at(side['precision_recall'], precision):.1%}" for side in sides]
        table.add_row(f"recall at precision {precision:.0%}", *cells)
    return table


def _table(title: str, comparison: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", title_style="", show_edge=False, pad_edge=False)
    table.add_column()
    for heading in ("before", "after", "difference", "95 % interval"):
        table.add_column(heading, justify="right")
    before, after = comparison["before"], comparison["after"]
    rows = {"accuracy": "accuracy", "confidence": "mean confidence", "nll": "NLL", "brier": "Brier"}
    for name, label in rows.items():
        cells = [f"{side[name]['value']:.4f}" for side in (before, after)]
        if name in comparison["difference"]:
            change = comparison["difference"][name]
            cells += [f"{change['estimate']:+.4f}", f"{change['low']:+.4f} … {change['high']:+.4f}"]
        table.add_row(label, *cells)
    table.add_row(f"ECE, {before['ece']['bins']} bins", *(f"{side['ece']['value']:.4f}" for side in (before, after)))
    for key, label in (("mean", "  if calibrated, mean"), ("q95", "  if calibrated, 95 %")):
        table.add_row(label, *(f"{side['ece']['null'][key]:.4f}" for side in (before, after)))
    return table
