"""Training and measuring one cell of a grid, in a folder of its own."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrators import Calibrator
from training.confidnet import confidences, fit_confidnet
from training.data import DataOptions, Dataset, Splits, cifar10h, corrupt, load
from training.determinism import deterministic
from training.errors import DataError
from training.export import logits_of
from training.logs import log_to
from training.loop import Epoch
from training.recipe import Recipe
from training.studies import measure
from training.studies.cell import Cell
from training.studies.measure import Scored
from training.studies.results import CONFIG, check_same, read_json, write_json, write_result
from training.trained import Trained, learn, save
from training.trained import load as load_trained

CHECKPOINT, WEIGHTS, LOGITS = "checkpoint.pt", "weights.npz", "logits.npz"
_CONFIDNET_EPOCHS, _CONFIDNET_STEP = 20, 1e-4
_VERSIONS = ("candor", "numpy", "scipy", "torch")


def run_cell(cell: Cell, out: Path, data: Path | None, on_epoch: Callable[[Epoch], None]) -> dict[str, Any]:
    """Train a cell's network, going on from its checkpoint if there is one, measure it, and write its result.

    Args:
        cell: The cell.
        out: Folder of studies; the cell's is `<out>/<study>/<key>`.
        data: Folder of data sets; None for the one that CANDOR_DATA names.
        on_epoch: Called after every epoch; what it raises stops the cell, and the checkpoint stays.

    Returns:
        The result.

    Raises:
        ConfigurationError: The folder is another configuration's, or something in this one cannot work.
        DivergedError: The loss became NaN or infinite.
    """
    folder = cell.folder(out)
    prepare(cell, out)
    began = time.perf_counter()
    trained = _trained(cell, folder, data, on_epoch)
    with deterministic(cell.config.seed, cell.config.threads):
        measured = measured_of(cell, trained, folder)
    measured["seconds"] = {
        "training": sum(epoch.seconds for epoch in trained.outcome.epochs),
        "this_run": time.perf_counter() - began,
    }
    result = write_result(cell, out, measured)
    (folder / WEIGHTS).unlink(missing_ok=True)
    return result


def _trained(cell: Cell, folder: Path, data: Path | None, on_epoch: Callable[[Epoch], None]) -> Trained:
    """The cell's network; its weights are kept until it is measured, so that an interruption then costs little."""
    weights = folder / WEIGHTS
    if weights.exists():
        return load_trained(weights, data)
    with log_to(folder) as log:

        def note(epoch: Epoch) -> None:
            log(epoch)
            on_epoch(epoch)

        trained = learn(replace(cell.config, data=data), keep=folder / CHECKPOINT, on_epoch=note)
    save(trained, weights)
    return trained


def prepare(cell: Cell, out: Path) -> None:
    """Make the cell's folder, or make sure that it is this cell's.

    Raises:
        ConfigurationError: It is of another configuration.
    """
    path = cell.folder(out) / CONFIG
    if path.exists():
        check_same(cell, read_json(path), path.parent)
    else:
        write_json(path, cell.document())


def measured_of(cell: Cell, trained: Trained, folder: Path) -> dict[str, Any]:
    """Everything that a result says of a trained network, in plain values; keeps its logits in the folder."""
    module, extras, data, parts = trained.module, cell.extras, trained.data, trained.parts
    calibration = _scored(trained, data, parts.reference())
    test = _scored(trained, data, parts.unseen())
    np.savez_compressed(
        folder / LOGITS,
        calibration_logits=calibration.logits,
        calibration_labels=calibration.labels,
        test_logits=test.logits,
        test_labels=test.labels,
        learned=trained.outcome.learned,
    )
    fitted = measure.post_hoc(calibration)
    methods = fitted.methods
    found: dict[str, Any] = {
        "rows": {
            "train": len(parts.train),
            "validation": len(parts.validation),
            "calibration": len(calibration.labels),
            "test": len(test.labels),
            "classes": test.logits.shape[1],
        },
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "epochs": [asdict(epoch) for epoch in trained.outcome.epochs],
        "temperature": fitted.temperature,
        "temperature_brent": measure.brent_temperature(calibration),
        "test": {name: measure.evaluation(method, test) for name, method in methods.items()},
        "curve": measure.ece_against_temperature(test),
        "confusion": measure.confusion(test),
        "density": {name: measure.density(methods[name], test) for name in ("none", "temperature")},
        "machine": {"platform": platform.machine(), "system": platform.system(), "threads": cell.config.threads},
        "versions": _versions(),
    }
    if sizes := extras.get("validation_sizes"):
        found["validation_size"] = measure.by_validation_size(calibration, test, list(sizes), cell.config.seed)
    if extras.get("largest_logits"):
        logits = logits_of(module, data.inputs[parts.train])
        found["largest_logits"] = measure.largest_logits(logits, trained.outcome.learned)
    if shifts := extras.get("shifts"):
        found["shift"] = {name: _under_shift(name, trained, data, parts, methods) for name in shifts}
    if extras.get("confidnet"):
        found["confidnet"] = _confidnet(trained, data, parts, test)
    if extras.get("people"):
        people = cifar10h.load(test.labels, trained.config.data).probabilities
        found["people"] = {name: measure.against_people(method, test, people) for name, method in methods.items()}
    return found


def _scored(trained: Trained, data: Dataset, rows: NDArray[np.int64]) -> Scored:
    return Scored(logits_of(trained.module, data.inputs[rows]), data.labels[rows])


def _under_shift(
    name: str, trained: Trained, data: Dataset, parts: Splits, methods: dict[str, Calibrator]
) -> dict[str, Any] | None:
    """Metrics under a corruption, `<name>@<severity>`, or on a data set of newer images; None where it is not there."""
    corruption, _, severity = name.partition("@")
    rows = parts.unseen()
    if severity:
        images, labels = corrupt(data.inputs[rows], corruption, int(severity)), data.labels[rows]
    else:
        try:
            newer = load(name, DataOptions(trained.config.data))
        except DataError:
            return None
        images, labels = newer.inputs, newer.labels
    scored = Scored(logits_of(trained.module, images), labels)
    return {key: measure.headline(measure.evaluation(method, scored)) for key, method in methods.items()}


def _confidnet(trained: Trained, data: Dataset, parts: Splits, test: Scored) -> dict[str, float]:
    """Refinement and calibration error of ConfidNet's confidence in the network's labels."""
    config = trained.config
    recipe = Recipe(
        epochs=_CONFIDNET_EPOCHS,
        batch_size=128,
        learning_rate=_CONFIDNET_STEP,
        seed=config.seed,
        threads=config.threads,
    )
    network = fit_confidnet(trained.module, data.inputs[parts.train], data.labels[parts.train], recipe)
    stated = confidences(network, trained.module, data.inputs[parts.unseen()]).astype(np.float64)
    right = (test.logits.argmax(axis=1) == test.labels).astype(np.int64)
    return measure.of_confidences(stated, right)


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in _VERSIONS:
        found[name] = version(name)
    return found
