"""The command line of training: `candor-train`."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import bundle
from calibrators import CALIBRATORS
from training import TrainConfig, train_bundle
from training.data import describe, settings_of
from training.errors import ConfigurationError, TrainingError
from training.options import with_options

if TYPE_CHECKING:
    from training.logs import OnEpoch
    from training.loop import Epoch

FAILED, USAGE, REFUSED, INTERRUPTED = 1, 2, 3, 130
_DEFAULT = TrainConfig()
_RUNS, _STUDIES = Path("runs"), Path("var/studies")
_EXIT_CODES = """Exit codes: 0 done · 1 the run failed · 2 a setting that cannot work · 3 a bundle is damaged or none ·
130 interrupted. Whatever the code, a bundle is there whole or not at all."""

app = typer.Typer(
    name="candor-train",
    help=f"Train classifiers, calibrate them, and export bundles that candor serves.\n\n{_EXIT_CODES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

PANELS = {
    "What": ("dataset", "model", "loss", "coefficients", "dropout", "calibrator", "name", "resize"),
    "Data": (
        *("data", "data_settings", "rows", "test_rows", "train_rows", "validation_rows", "reference_rows"),
        *("fit_share", "certify_share", "stratified", "centred", "crop", "flip", "cutout", "mixup"),
    ),
    "Training": (
        *("epochs", "batch_size", "optimiser", "learning_rate", "momentum", "nesterov", "weight_decay", "schedule"),
        *("milestones", "step_factor", "warm_up", "clip", "patience", "seed"),
    ),
    "Machine": ("device", "threads", "precision", "channels_last", "compile"),
}

IMPORT_PANELS = {
    "What": ("dataset", "model", "calibrator", "name", "resize"),
    "Data": (
        *("data", "data_settings", "rows", "test_rows", "reference_rows", "fit_share", "certify_share"),
        *("stratified", "seed"),
    ),
    "Machine": ("threads",),
}

BundleArgument = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="Folder of a bundle, such as bundles/digits/1.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for scripts.")]


@app.command("train")
@with_options(TrainConfig, PANELS)
def train_command(
    config: Callable[[], TrainConfig],
    out: Annotated[Path, typer.Option(help="Folder of bundles; the new one is OUT/NAME/VERSION.", show_default=False)],
    weights: Annotated[
        Path | None, typer.Option(help="File to keep the trained network in, for `export`.", rich_help_panel="What")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="File of a checkpoint: an interrupted run goes on from it, to the same result.",
            rich_help_panel="Following",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a log, as JSON lines and for TensorBoard; a new one in `runs` if not given.",
            rich_help_panel="Following",
            show_default=False,
        ),
    ] = None,
    no_log: Annotated[bool, typer.Option("--no-log", help="Log nothing.", rich_help_panel="Following")] = False,
    as_json: Json = False,
) -> None:
    """Train a network, calibrate it on held-out rows, and write it as a bundle.

    Nothing is written before the exported graph has given the network's own logits on golden inputs. Under `torchrun`,
    the processes train one network together.
    """
    with _told(keep):
        asked = config()
        folder = None if no_log or not leads() else log or _run_folder(asked, keep)
        with _progress(f"Training {asked.model} on {asked.dataset}", asked.epochs) as show, ExitStack() as stack:

            @cache  # at the first epoch, so that a run which is refused leaves no folder
            def log_file() -> OnEpoch | None:
                return None if folder is None else stack.enter_context(_log_to(folder))

            def on_epoch(epoch: Epoch) -> None:
                show(epoch)
                if (note := log_file()) is not None:
                    note(epoch)

            path = train_bundle(asked, out, weights=weights, keep=keep, on_epoch=on_epoch)
        if leads():
            _show(path, as_json=as_json)


@app.command("list")
def list_command() -> None:
    """Show which data sets, models, losses and calibrators there are."""
    from training.losses import LOSSES  # imports torch
    from training.models import MODELS

    kinds = {
        "data set": {name: _with_settings(line, settings_of(name)) for name, line in describe().items()},
        "model": {name: _first_line(model) for name, model in MODELS.items()},
        "loss": {name: _first_line(loss) for name, loss in LOSSES.items()},
        "calibrator": {name: _first_line(calibrator) for name, calibrator in CALIBRATORS.items()},
    }
    console = Console()
    for kind, entries in kinds.items():
        table = Table(show_edge=False, pad_edge=False, header_style="bold")
        table.add_column(kind, no_wrap=True)
        table.add_column()
        for name, line in entries.items():
            table.add_row(name, escape(line))
        console.print(table, "")


def _with_settings(line: str, settings: Mapping[str, Any]) -> str:
    return f"{line} Settings: {', '.join(settings)}." if settings else line


@app.command("export")
def export_command(
    weights: Annotated[
        Path, typer.Argument(metavar="WEIGHTS", help="File that `train --weights` wrote.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder of bundles; the new one is OUT/NAME/VERSION.", show_default=False)],
    calibrator: Annotated[
        str | None, typer.Option(help="Calibrator to fit; as trained if not given.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model; as trained if not given.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a bundle of a network that was trained before, without training it again."""
    with _told():
        from training.pipeline import export_bundle
        from training.trained import load

        trained = load(weights)
        config = trained.config
        config = replace(config, calibrator=calibrator or config.calibrator, name=name or config.name)
        _show(export_bundle(replace(trained, config=config), out), as_json=as_json)


@app.command("import")
@with_options(TrainConfig, IMPORT_PANELS, some=True)
def import_command(
    config: Callable[[], TrainConfig],
    weights: Annotated[
        Path,
        typer.Argument(
            metavar="WEIGHTS", help="State dictionary: .pt, .pth, .th, .npz or .safetensors.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of bundles; the new one is OUT/NAME/VERSION.", show_default=False)],
    mean: Annotated[
        list[float],
        typer.Option(
            help="What the weights expect to be subtracted from a channel, on the scale 0 … 1; once for each channel.",
            show_default=False,
        ),
    ],
    deviation: Annotated[
        list[float],
        typer.Option(help="What they expect it to be divided by then, on the same scale.", show_default=False),
    ],
    as_json: Json = False,
) -> None:
    """Make a bundle of weights that were trained and published elsewhere.

    Reference rows come from the data set's test part, which the network has not seen; where there is none, from all
    rows: then give it rows that it has not seen. `docs/training.md` says which names of weights are known.
    """
    with _told():
        from training.imported import import_published
        from training.pipeline import export_bundle

        _show(export_bundle(import_published(weights, config(), mean, deviation), out), as_json=as_json)


@app.command("calibrate")
def calibrate_command(
    path: BundleArgument,
    calibrator: Annotated[str, typer.Option(help="Calibrator to fit.")] = _DEFAULT.calibrator,
    as_json: Json = False,
) -> None:
    """Fit another calibrator on a bundle's held-out rows; writes the model's next version."""
    with _told():
        from training.calibrate import calibrate_bundle

        _show(calibrate_bundle(path, calibrator), as_json=as_json)


@app.command("report")
def report_command(
    path: BundleArgument,
    to: Annotated[
        Path | None, typer.Option(help="Folder to copy report.json and the diagrams to.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a bundle and show what calibration changed, with its uncertainty."""
    with _told():
        _show(path, as_json=as_json)
        if to is not None:
            _copy_report(bundle.verify(path), to)


@app.command("study")
def study_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="wang2021, singh2021, losses-cifar10 or lenet-birdcat.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of data sets; the one that CANDOR_DATA names if not given.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of studies: each cell has its own, OUT/NAME/CELL.")] = Path(
        "var/studies"
    ),
    scale: Annotated[
        Literal["small", "full"], typer.Option(help="What two cores can do, or the experiment as it was published.")
    ] = "small",
    seeds: Annotated[int | None, typer.Option(help="Seeds of each network; the scale's own if not given.")] = None,
    only: Annotated[str, typer.Option(help="Run only cells with this in their key.")] = "",
    workers: Annotated[int, typer.Option(help="Processes that work side by side.")] = 1,
    report: Annotated[Path | None, typer.Option(help="Folder to write a report of all finished cells to.")] = None,
    finished: Annotated[
        Path | None, typer.Option("--from", help="Folder of an earlier report, to take finished cells from.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the cells and how far they are; run nothing.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing; report on what is there.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try cells again that failed.")] = False,
) -> None:
    """Repeat a published comparison: train a grid of networks, each cell resumable, and report on it."""
    with _told():
        from training.studies.command import Asked, study  # imports torch

        asked = Asked(name, data, out, scale, seeds, only, workers, report, finished, listed, no_run, retry)
        if not study(asked, typer.echo):
            raise typer.Exit(FAILED)


def main() -> None:
    """Entry point of `candor-train`."""
    app()


@contextmanager
def _told(keep: Path | None = None) -> Iterator[None]:
    """Turn expected errors into one sentence and an exit code.

    Args:
        keep: File of a checkpoint that an interrupted run goes on from.
    """
    try:
        yield
    except ConfigurationError as error:
        _fail(error, USAGE)
    except (TrainingError, OSError) as error:
        _fail(error, FAILED)
    except bundle.BundleError as error:
        _fail(error, REFUSED)
    except KeyboardInterrupt:
        goes_on = keep is not None and keep.exists()
        told = f"the same command goes on from {keep}" if goes_on else "a bundle is there whole or not at all"
        _fail(f"interrupted; {told}", INTERRUPTED)


def _fail(message: object, code: int) -> None:
    Console(stderr=True).print(f"[bold red]error[/] {escape(str(message))}", highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def leads() -> bool:
    """Whether this is the process that writes and speaks, of those that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _run_folder(config: TrainConfig, keep: Path | None) -> Path:
    """A new folder for the run's log, or the last one where the run goes on from a checkpoint."""
    name = f"{config.model_name}-{config.model}-{config.loss}-{config.seed}"
    last = max((int(path.name.rpartition(".")[2]) for path in _RUNS.glob(f"{name}.[0-9]*")), default=0)
    goes_on = last > 0 and keep is not None and keep.exists()
    return _RUNS / f"{name}.{last if goes_on else last + 1}"


def _log_to(folder: Path) -> AbstractContextManager[OnEpoch]:
    from training.logs import log_to  # imports torch

    return log_to(folder)


@contextmanager
def _progress(title: str, epochs: int) -> Iterator[Any]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title, total=epochs, loss="…")

        def on_epoch(epoch: Epoch) -> None:
            validation = "" if epoch.validation is None else f", validation {epoch.validation.accuracy:.1%}"
            progress.update(task, completed=epoch.number, loss=f"{epoch.loss:.4f}{validation}")

        yield on_epoch


def _show(path: Path, *, as_json: bool) -> None:
    found = bundle.verify(path)
    if as_json:
        document = {"bundle": str(path), "id": found.id, "manifest": found.manifest.model_dump(mode="json")}
        sys.stdout.write(json.dumps(document | {"report": found.report}, ensure_ascii=False) + "\n")
        return
    report, manifest = found.report, found.manifest
    console = Console()
    console.print(f"[bold]{manifest.model} {manifest.version}[/bold], calibrator: {report['calibrator']['method']}")
    console.print(_table(f"{report['rows']['evaluated']} reference rows that it was not fitted on", report))
    if "test" in report:
        console.print(_table(f"{report['test']['rows']} rows that are not in the bundle", report["test"]))
    if unseen := report.get("training", {}).get("classes_without_rows"):
        told = f"[bold yellow]warning[/] no training row is of {escape(', '.join(unseen))}: the network cannot know "
        Console(stderr=True).print(f"{told}{'it' if len(unseen) == 1 else 'them'}", highlight=False, soft_wrap=True)
    console.print(f"{escape(str(path))}  verified, id {found.id[:12]}", highlight=False, soft_wrap=True)


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


def _copy_report(found: bundle.Bundle, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    (to / "report.json").write_text(json.dumps(found.report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, svg in found.diagrams.items():
        (to / f"{name}.svg").write_bytes(svg)
