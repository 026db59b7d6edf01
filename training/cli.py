"""The command line of training: `candor-train`."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import bundle
from calibrators import CALIBRATORS
from importing.usage import Commands
from training import TrainConfig, train_bundle
from training.console import USAGE, copy_report, fail, progress, reported_errors, show
from training.data import describe, settings_of
from training.documents import check_folder
from training.epochs import Epoch, OnEpoch
from training.errors import ConfigurationError
from training.options import with_options
from training.own import GROUPS, offered
from training.photographs import BY_DATA
from training.tracking import track_to

_RUNS = Path("runs")
_EXIT_CODES = """Exit codes: 0 success · 1 the run failed · 2 invalid setting · 3 damaged or missing bundle ·
130 interrupted. A bundle is always written whole or not at all."""

app = typer.Typer(
    name="candor-train",
    cls=Commands,
    help=f"Train classifiers, calibrate them, and export bundles that candor serves.\n\n{_EXIT_CODES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

PANELS = {
    "What": (
        "dataset",
        "model",
        "model_settings",
        "pretrained",
        "image_size",
        "max_length",
        "loss",
        "coefficients",
        "dropout",
        "calibrator",
        "name",
        "resize",
    ),
    "Data": (
        *("data", "data_settings", "rows", "test_rows", "train_rows", "validation_rows", "reference_rows"),
        *(
            "fit_share",
            "certify_share",
            "stratified",
            "centred",
            "crop",
            "flip",
            "cutout",
            "rand_augment",
            "erasing",
            "mixup",
            "cutmix",
        ),
    ),
    "Imbalance": (*("class_weights", "sampling", "logit_adjustment"),),
    "Training": (
        *("epochs", "batch_size", "optimiser", "learning_rate", "momentum", "nesterov", "weight_decay", "schedule"),
        *("milestones", "step_factor", "warm_up", "layer_decay", "frozen_epochs", "clip", "patience"),
        *("average", "seed"),
    ),
    "Machine": ("device", "threads", "precision", "accumulation", "channels_last", "compile", "deterministic"),
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
Out = Annotated[Path, typer.Option(help="Folder of bundles; the new one is OUT/NAME/VERSION.", show_default=False)]
Track = Annotated[
    str | None,
    typer.Option(
        metavar="mlflow:URI",
        help="MLflow server or database to log to as well, such as mlflow:http://127.0.0.1:5000.",
        rich_help_panel="Following",
        show_default=False,
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Ray cluster that trains, HOST:PORT, or `auto` for the one of this machine. Every node must reach the "
        "data and the paths.",
        rich_help_panel="Machine",
        show_default=False,
    ),
]
AllowPoor = Annotated[
    bool, typer.Option("--allow-poor", help="Write a model that has collapsed, or whose calibrator is at its bound.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for scripts.")]


@app.command("train")
@with_options(TrainConfig, PANELS, by_data=BY_DATA)
def train_command(
    config: Callable[[], TrainConfig],
    out: Out,
    save_weights: Annotated[
        Path | None, typer.Option(help="File to keep the trained network in, for `export`.", rich_help_panel="What")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoint file. An interrupted run continues from it, with the same result.",
            rich_help_panel="Following",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the log (JSON lines and TensorBoard). Default: a new folder in `runs`.",
            rich_help_panel="Following",
            show_default=False,
        ),
    ] = None,
    no_log: Annotated[bool, typer.Option("--no-log", help="Write no log.", rich_help_panel="Following")] = False,
    track: Track = None,
    ray: Ray = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes on the Ray cluster that train one network together, each with `--threads` CPUs (one if not "
            "given). Default: 1.",
            rich_help_panel="Machine",
            show_default=False,
        ),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Let no setting follow the data for photographs.", rich_help_panel="Training"),
    ] = False,
    allow_poor: AllowPoor = False,
    as_json: Json = False,
) -> None:
    """Train a network or boosted trees, calibrate them on held-out rows, and write them as a bundle.

    Tables get LightGBM by default, or scikit-learn's trees where it is not installed; images and texts get networks.
    The bundle is written only after the exported graph has given the same answers as what was trained. Under
    `torchrun`, the processes train one network together.
    """
    with reported_errors(keep):
        given = replace(config(), by_data=()) if plain else config()
        train = _trainer(ray, workers)
        folder = None if no_log or not leads() else log or _run_folder(given, keep)
        if folder is not None:
            check_folder(folder, "for the log")
        if keep is not None and keep.is_dir():
            raise ConfigurationError(f"--keep {keep} is a folder, expected a file")
        with progress(f"Training {_model(given)} on {given.dataset}", given.epochs) as shown, ExitStack() as stack:
            followers = [shown.epoch]

            @cache  # from the first epoch on, so that a refused run leaves no folder
            def logged(to: Path) -> OnEpoch:
                from training.logs import log_to  # imports torch

                return stack.enter_context(log_to(to))

            def on_epoch(epoch: Epoch) -> None:
                for follower in followers:
                    follower(epoch)
                if folder is not None:
                    logged(folder)(epoch)

            tracker = stack.enter_context(track_to(track, given, given.model_name)) if track and leads() else None
            if tracker is not None:
                followers.append(tracker.epoch)
            path = train(
                given,
                out,
                weights=save_weights,
                keep=keep,
                on_start=None if tracker is None else tracker.settings,
                on_epoch=on_epoch,
                on_step=shown.step,
                allow_poor=allow_poor,
            )
            if tracker is not None:
                tracker.bundle(path)
        if leads():
            show(path, as_json=as_json)


@app.command("search")
@with_options(TrainConfig, PANELS)
def search_command(
    config: Callable[[], TrainConfig],
    tune: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUES",
            help="Setting to tune: NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=A,B,C. NAME is a setting of training, "
            "model, loss, coefficients.NAME or model_settings.NAME. Repeatable.",
            rich_help_panel="Search",
            show_default=False,
        ),
    ],
    trials: Annotated[
        int, typer.Option(help="Trials in total, with those of earlier calls.", rich_help_panel="Search")
    ] = 20,
    storage: Annotated[
        str,
        typer.Option(
            help="Database of the trials: sqlite:///FILE or postgresql://USER@HOST/NAME.",
            rich_help_panel="Search",
        ),
    ] = "sqlite:///search.db",
    study: Annotated[
        str | None,
        typer.Option(
            help="Name of the search in the database. Default: the model's.",
            rich_help_panel="Search",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="Metric of the validation rows: nll, ece, ece_at_temperature, accuracy, refinement_auroc, or auroc "
            "and average_precision of the rarer of two classes.",
            rich_help_panel="Search",
        ),
    ] = "nll",
    no_prune: Annotated[
        bool, typer.Option("--no-prune", help="Train every trial to its end.", rich_help_panel="Search")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of bundles to train the best settings into.", show_default=False),
    ] = None,
    track: Track = None,
    ray: Ray = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Maximum trials at a time on the Ray cluster, each with `--threads` CPUs (default: 1). Default: as "
            "many as it has room for. With 1, the trials are those without Ray.",
            rich_help_panel="Machine",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Search for settings that do best on validation rows. Needs Optuna.

    All trials share the parts of the data set; reference and test rows stay unseen. A trial that is worse than half of
    the others at the same epoch stops. The same command continues an interrupted search; several at once share one.
    """
    with reported_errors(left="the same command continues the search"):
        from training.search import Search, configured, parse_knob, run
        from training.search_console import Following, show_trials

        base = config()
        search = Search(
            base,
            [parse_knob(each) for each in tune],
            storage,
            trials,
            study or base.model_name,
            objective,
            prune=not no_prune,
        )
        _check_workers(ray, workers)
        following = Following(search, track, bars=ray is None)
        found = run(search, following.trial, following.tell, following.lost, ray=ray, workers=workers)
        show_trials(search, found, as_json=as_json)
        if out is not None:
            best = configured(base, found[0].settings)
            with progress(f"Training {_model(best)} on {best.dataset} with the best settings", best.epochs) as shown:
                path = _trainer(ray, None)(best, out, on_epoch=shown.epoch, on_step=shown.step)
            if not as_json:
                show(path, as_json=False)


@app.command("list")
def list_command() -> None:
    """List the data sets, models (networks and trees), losses and calibrators."""
    from training.losses import LOSSES  # imports torch
    from training.models import MODELS
    from training.trees import TREES

    kinds = {
        "data set": {name: _with_settings(line, settings_of(name)) for name, line in describe().items()},
        "model": {name: _first_line(model) for name, model in (MODELS | TREES).items()} | _offered("model"),
        "loss": {name: _first_line(loss) for name, loss in LOSSES.items()} | _offered("loss"),
        "calibrator": {name: _first_line(calibrator) for name, calibrator in CALIBRATORS.items()},
    }
    console = Console(emoji=False)
    for kind, entries in kinds.items():
        table = Table(show_edge=False, pad_edge=False, header_style="bold")
        table.add_column(kind, no_wrap=True)
        table.add_column()
        for name, line in entries.items():
            table.add_row(name, escape(line))
        console.print(table, "")


@app.command("export")
def export_command(
    weights: Annotated[
        Path, typer.Argument(metavar="WEIGHTS", help="File written by `train --save-weights`.", show_default=False)
    ],
    out: Out,
    calibrator: Annotated[
        str | None, typer.Option(help="Calibrator to fit; as trained if omitted.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model; as trained if omitted.", show_default=False)
    ] = None,
    allow_poor: AllowPoor = False,
    as_json: Json = False,
) -> None:
    """Make a bundle from a network trained earlier, without training it again."""
    with reported_errors():
        from training.pipeline import export_bundle
        from training.trained import load

        trained = load(weights)
        config = trained.config
        config = replace(config, calibrator=calibrator or config.calibrator, name=name or config.name)
        show(export_bundle(replace(trained, config=config), out, allow_poor=allow_poor), as_json=as_json)


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
    out: Out,
    mean: Annotated[
        list[float],
        typer.Option(
            help="Mean that the weights expect subtracted, scale 0 … 1; repeat for each channel.", show_default=False
        ),
    ],
    deviation: Annotated[
        list[float],
        typer.Option(
            help="Deviation that they expect divided by, scale 0 … 1; repeat for each channel.", show_default=False
        ),
    ],
    allow_poor: AllowPoor = False,
    as_json: Json = False,
) -> None:
    """Make a bundle from weights trained and published elsewhere.

    Reference rows come from the data set's test part, which the network has not seen. Without a test part they come
    from all rows: then use rows that the network has not seen. `docs/how-to/training.md` lists the known weight
    names.
    """
    with reported_errors():
        from training.imported import import_published
        from training.pipeline import export_bundle

        trained = import_published(weights, config(), mean, deviation)
        show(export_bundle(trained, out, allow_poor=allow_poor), as_json=as_json)


@app.command("calibrate")
def calibrate_command(
    path: BundleArgument,
    calibrator: Annotated[str, typer.Option(help="Calibrator to fit.")] = "temperature",
    as_json: Json = False,
) -> None:
    """Fit another calibrator on a bundle's held-out rows and write the model's next version."""
    with reported_errors():
        from training.calibrate import calibrate_bundle

        show(calibrate_bundle(path, calibrator), as_json=as_json)


@app.command("report")
def report_command(
    path: BundleArgument,
    to: Annotated[
        Path | None, typer.Option(help="Folder to copy report.json and the diagrams to.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify a bundle and show what calibration changed, with confidence intervals."""
    with reported_errors():
        show(path, as_json=as_json)
        if to is not None:
            copy_report(bundle.verify(path), to)


@app.command(
    "study",
    add_help_option=False,  # the studies have one of their own
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def study_command(context: typer.Context) -> None:
    """Repeat a published comparison and report on it. Needs a checkout of the repository."""
    checkout = Path(__file__).parents[1]
    if not (checkout / "studies" / "command.py").is_file():
        fail(
            "studies are not part of an installation; clone the repository and run `candor-train study` from there",
            USAGE,
        )
    sys.path.insert(0, str(checkout))
    import_module("studies.command").app(context.args, prog_name="candor-train study")


def _trainer(ray: str | None, workers: int | None) -> Callable[..., Path]:
    """Return what trains: this process, or a Ray cluster."""
    _check_workers(ray, workers)
    if ray is None:
        return train_bundle
    from training.ray_train import train_on_ray

    return partial(train_on_ray, ray, workers or 1)


def _check_workers(ray: str | None, workers: int | None) -> None:
    if workers is not None and ray is None:
        raise ConfigurationError("--workers belongs to --ray; without Ray, start the processes with torchrun")
    if workers is not None and workers < 1:
        raise ConfigurationError(f"workers is {workers}, expected at least 1")


def _model(config: TrainConfig) -> str:
    return "the default model" if config.model == "auto" else config.model


def leads() -> bool:
    """Return whether this process writes and prints: alone, or the first of those that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


def _with_settings(line: str, settings: Mapping[str, Any]) -> str:
    return f"{line} Settings: {', '.join(settings)}." if settings else line


def _offered(kind: str) -> dict[str, str]:
    """Describe the entry points of installed packages, without importing them."""
    return {name: f"{point.value}, an entry point of {GROUPS[kind]}." for name, point in offered(kind).items()}


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _run_folder(config: TrainConfig, keep: Path | None) -> Path:
    """Return a new folder for the run's log, or the last one if the run continues from a checkpoint."""
    name = re.sub(r"[^\w.-]+", "_", f"{config.model_name}-{config.model}-{config.loss}-{config.seed}")
    ends = (path.name.removeprefix(f"{name}.") for path in _RUNS.glob(f"{name}.*"))
    last = max((int(end) for end in ends if end.isdecimal()), default=0)
    continues = last > 0 and keep is not None and keep.exists()
    return _RUNS / f"{name}.{last if continues else last + 1}"


def main() -> None:
    """Entry point of `candor-train`."""
    app()
