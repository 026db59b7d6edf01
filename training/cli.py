"""The command line of training: `candor-train`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import bundle
from training import TrainConfig, train_bundle
from training.errors import ConfigurationError, TrainingError

if TYPE_CHECKING:
    from training.loop import Epoch

FAILED, USAGE, REFUSED, INTERRUPTED = 1, 2, 3, 130
_DEFAULT = TrainConfig()
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

BundleArgument = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="Folder of a bundle, such as bundles/digits/1.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for scripts.")]


@app.command("train")
def train_command(
    out: Annotated[Path, typer.Option(help="Folder of bundles; the new one is OUT/NAME/VERSION.", show_default=False)],
    dataset: Annotated[str, typer.Option(help="Data set to learn.", rich_help_panel="What")] = _DEFAULT.dataset,
    model: Annotated[str, typer.Option(help="Architecture.", rich_help_panel="What")] = _DEFAULT.model,
    loss: Annotated[str, typer.Option(help="Loss to minimise.", rich_help_panel="What")] = _DEFAULT.loss,
    calibrator: Annotated[
        str, typer.Option(help="Calibrator to fit on held-out rows.", rich_help_panel="What")
    ] = _DEFAULT.calibrator,
    name: Annotated[
        str | None, typer.Option(help="Name of the model; the data set's if not given.", rich_help_panel="What")
    ] = _DEFAULT.name,
    resize: Annotated[
        bool, typer.Option("--resize", help="Let the model resize images of another size.", rich_help_panel="What")
    ] = _DEFAULT.resize,
    train_rows: Annotated[
        int | None, typer.Option(help="Rows to learn from.", rich_help_panel="Data")
    ] = _DEFAULT.train_rows,
    reference_rows: Annotated[
        int, typer.Option(help="Held-out rows that go into the bundle.", rich_help_panel="Data")
    ] = _DEFAULT.reference_rows,
    fit_share: Annotated[
        float, typer.Option(help="Share of them that fit the calibrator.", rich_help_panel="Data")
    ] = _DEFAULT.fit_share,
    certify_share: Annotated[
        float, typer.Option(help="Share that certifies; the rest are gate rows.", rich_help_panel="Data")
    ] = _DEFAULT.certify_share,
    epochs: Annotated[int, typer.Option(help="Passes over the rows.", rich_help_panel="Training")] = _DEFAULT.epochs,
    batch_size: Annotated[int, typer.Option(help="Rows per step.", rich_help_panel="Training")] = _DEFAULT.batch_size,
    learning_rate: Annotated[
        float, typer.Option(help="Adam's step size.", rich_help_panel="Training")
    ] = _DEFAULT.learning_rate,
    dropout: Annotated[
        float, typer.Option(help="Probability of dropping a unit.", rich_help_panel="Training")
    ] = _DEFAULT.dropout,
    seed: Annotated[
        int, typer.Option(help="Seed of split, weights and order.", rich_help_panel="Training")
    ] = _DEFAULT.seed,
    threads: Annotated[
        int, typer.Option(help="Threads to compute with.", rich_help_panel="Training")
    ] = _DEFAULT.threads,
    weights: Annotated[
        Path | None,
        typer.Option(help="File to keep the trained network in, for `export`.", rich_help_panel="What"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a network, calibrate it on held-out rows, and write it as a bundle.

    Nothing is written before the exported graph has given the network's own logits on golden inputs.
    """
    with _told():
        config = TrainConfig(
            dataset=dataset,
            model=model,
            loss=loss,
            calibrator=calibrator,
            name=name,
            seed=seed,
            train_rows=train_rows,
            reference_rows=reference_rows,
            fit_share=fit_share,
            certify_share=certify_share,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            dropout=dropout,
            resize=resize,
            threads=threads,
        )
        with _progress(f"Training {model} on {dataset}", epochs) as on_epoch:
            path = train_bundle(config, out, weights=weights, on_epoch=on_epoch)
        _show(path, as_json=as_json)


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


def main() -> None:
    """Entry point of `candor-train`."""
    app()


@contextmanager
def _told() -> Iterator[None]:
    """Turn expected errors into one sentence and an exit code."""
    try:
        yield
    except ConfigurationError as error:
        _fail(error, USAGE)
    except (TrainingError, OSError) as error:
        _fail(error, FAILED)
    except bundle.BundleError as error:
        _fail(error, REFUSED)
    except KeyboardInterrupt:
        _fail("interrupted; a bundle is there whole or not at all", INTERRUPTED)


def _fail(message: object, code: int) -> None:
    Console(stderr=True).print(f"[bold red]error[/] {escape(str(message))}", highlight=False, soft_wrap=True)
    raise typer.Exit(code)


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
            progress.update(task, completed=epoch.number, loss=f"{epoch.loss:.4f}")

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
