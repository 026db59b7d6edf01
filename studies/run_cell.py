"""Training and measuring one cell of a grid, in a folder of its own."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from bundle import LabelledLogits
from calibrators import Calibrator
from studies import measure
from studies.cell import Cell
from studies.results import CONFIG, check_same, read_json, write_json, write_result
from training.confidnet import confidences, fit_confidnet
from training.data import DataOptions, cifar10h, corrupt, load
from training.determinism import deterministic
from training.documents import versions_of
from training.epochs import Epoch, OnEpoch
from training.errors import ConfigurationError, DataError
from training.export import logits_of
from training.logs import log_to
from training.recipe import Recipe
from training.trained import Given, Trained, learn, save
from training.trained import load as load_trained

CHECKPOINT, WEIGHTS, LOGITS = "checkpoint.pt", "weights.npz", "logits.npz"
_CONFIDNET_EPOCHS, _CONFIDNET_STEP = 20, 1e-4
_PACKAGES = ("candor", "numpy", "scipy", "torch")


def run_cell(cell: Cell, out: Path, data: Path | None, on_epoch: OnEpoch) -> dict[str, Any]:
    """Train a cell's network, from its checkpoint if there is one, measure it, and write its result.

    Args:
        cell: The cell.
        out: Folder of studies; the cell's is `<out>/<study>/<key>`.
        data: Folder of data sets; None for CANDOR_DATA.
        on_epoch: Called after every epoch; an exception stops the cell and leaves its checkpoint.

    Returns:
        The result.

    Raises:
        ConfigurationError: The folder belongs to another configuration, or this configuration is invalid.
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


def _trained(cell: Cell, folder: Path, data: Path | None, on_epoch: OnEpoch) -> Trained:
    """Return the cell's network; its weights are kept until it is measured, so that an interruption costs little."""
    weights = folder / WEIGHTS
    if weights.exists():
        return load_trained(weights, data)
    config = replace(cell.config, data=data)
    whole = config.read()
    config, notes = config.suited(whole)
    given = Given(*config.cut(whole), notes=notes)
    if not len(given.parts.unseen()):
        raise ConfigurationError(f"{config.dataset} leaves no rows to test on; set test_rows")
    with log_to(folder) as log:

        def note(epoch: Epoch) -> None:
            log(epoch)
            on_epoch(epoch)

        trained = learn(config, given=given, keep=folder / CHECKPOINT, on_epoch=note)
    save(trained, weights)
    return trained


def prepare(cell: Cell, out: Path) -> None:
    """Create the cell's folder; raises ConfigurationError if it exists for another configuration."""
    path = cell.folder(out) / CONFIG
    if path.exists():
        check_same(cell, read_json(path), path.parent)
    else:
        write_json(path, cell.document())


def measured_of(cell: Cell, trained: Trained, folder: Path) -> dict[str, Any]:
    """Return all measurements of a trained network, as plain values, and write its logits to the folder."""
    module, extras, data, parts = trained.module, cell.extras, trained.data, trained.parts
    calibration = trained.scored(parts.reference())
    test = trained.scored(parts.unseen())
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
        "versions": versions_of(*_PACKAGES),
    }
    if sizes := extras.get("validation_sizes"):
        found["validation_size"] = measure.by_validation_size(calibration, test, list(sizes), cell.config.seed)
    if extras.get("largest_logits"):
        logits = logits_of(module, data.inputs[parts.train])
        found["largest_logits"] = measure.largest_logits(logits, trained.outcome.learned)
    if shifts := extras.get("shifts"):
        found["shift"] = {name: _under_shift(name, trained, methods) for name in shifts}
    if extras.get("confidnet"):
        found["confidnet"] = _confidnet(trained, test)
    if extras.get("people"):
        people = cifar10h.load(test.labels, trained.config.data).probabilities
        found["people"] = {name: measure.against_people(method, test, people) for name, method in methods.items()}
    return found


def _under_shift(name: str, trained: Trained, methods: dict[str, Calibrator]) -> dict[str, Any] | None:
    """Return metrics under a corruption, `<name>@<severity>`, or on a data set of newer images; None if missing."""
    corruption, _, severity = name.partition("@")
    if severity:
        rows = trained.parts.unseen()
        images = corrupt(trained.data.array[rows], corruption, int(severity))
        labels = trained.data.labels[rows]
    else:
        try:
            newer = load(name, DataOptions(trained.config.data))
        except DataError:
            return None
        images, labels = newer.array, newer.labels
    scored = LabelledLogits(logits_of(trained.module, images), labels)
    return {key: measure.headline(measure.evaluation(method, scored)) for key, method in methods.items()}


def _confidnet(trained: Trained, test: LabelledLogits) -> dict[str, float]:
    """Return refinement and calibration error of ConfidNet's confidence in the network's labels."""
    config, data, parts = trained.config, trained.data, trained.parts
    recipe = Recipe(
        epochs=_CONFIDNET_EPOCHS,
        batch_size=128,
        learning_rate=_CONFIDNET_STEP,
        seed=config.seed,
        threads=config.threads,
    )
    network = fit_confidnet(trained.module, data.array[parts.train], data.labels[parts.train], recipe)
    stated = confidences(network, trained.module, data.array[parts.unseen()]).astype(np.float64)
    right = (test.logits.argmax(axis=1) == test.labels).astype(np.int64)
    return measure.of_confidences(stated, right)
