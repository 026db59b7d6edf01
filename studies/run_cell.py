"""Training and measuring one cell of a grid, in a folder of its own."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from bundle import LabelledLogits
from bundle.whole_file import whole_file
from studies import measure
from studies.cell import Cell
from studies.raw import measured_of, raw_of
from studies.results import CONFIG, check_same, read_json, write_json, write_result
from training.data import cifar10h
from training.determinism import deterministic
from training.documents import versions_of
from training.epochs import Epoch, OnEpoch
from training.errors import ConfigurationError
from training.logs import log_to
from training.trained import Given, Trained, learn, save
from training.trained import load as load_trained

CHECKPOINT, WEIGHTS, LOGITS = "checkpoint.pt", "weights.npz", "logits.npz"
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
        measured = _measured(cell, trained, folder)
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
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return trained


def prepare(cell: Cell, out: Path) -> None:
    """Create the cell's folder; raises ConfigurationError if it exists for another configuration."""
    path = cell.folder(out) / CONFIG
    if path.exists():
        check_same(cell, read_json(path), path.parent)
    else:
        write_json(path, cell.document())


def _measured(cell: Cell, trained: Trained, folder: Path) -> dict[str, Any]:
    """Return all measurements of a trained network, as plain values, and write its raw outputs to the folder."""
    raw, parts = raw_of(cell, trained), trained.parts
    with whole_file(folder / LOGITS) as stream:
        np.savez_compressed(stream, **dict[str, Any](raw))
    found = {
        "rows": {
            "train": len(parts.train),
            "validation": len(parts.validation),
            "calibration": len(raw["calibration_labels"]),
            "test": len(raw["test_labels"]),
            "classes": raw["test_logits"].shape[1],
        },
        "parameters": sum(parameter.numel() for parameter in trained.module.parameters()),
        "epochs": [asdict(epoch) for epoch in trained.outcome.epochs],
        "machine": {"platform": platform.machine(), "system": platform.system(), "threads": cell.config.threads},
        "versions": versions_of(*_PACKAGES),
        **measured_of(cell, raw),
    }
    if cell.extras.get("people"):
        people = cifar10h.load(raw["test_labels"], trained.config.data).probabilities
        test = LabelledLogits(raw["test_logits"], raw["test_labels"])
        methods = measure.post_hoc(LabelledLogits(raw["calibration_logits"], raw["calibration_labels"])).methods
        found["people"] = {name: measure.against_people(method, test, people) for name, method in methods.items()}
    return found
