"""The raw outputs of a trained network, and all that a study measures, from these arrays alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import LabelledLogits
from studies import measure
from studies.cell import Cell
from training.confidnet import confidences, fine_tuned, fit_confidnet
from training.data import DataOptions, corrupt, load
from training.errors import DataError
from training.export import logits_of
from training.recipe import Recipe
from training.trained import Trained

Raw = Mapping[str, NDArray[Any]]
_FIRST, _SECOND = (20, 1e-4), (5, 1e-6)  # epochs and step of ConfidNet's stages


def raw_of(cell: Cell, trained: Trained) -> dict[str, NDArray[Any]]:
    """Return what a network answers to calibration and test rows, and to whatever else its cell measures.

    Returns:
        `calibration_logits`, `calibration_labels`, `test_logits`, `test_labels`, and `learned`, the learned epoch of
        each training row; by the cell's extras also `largest`, the largest logit of each training row,
        `SHIFT/logits` and `SHIFT/labels`, and `confidnet` and `confidnet_tuned`, confidences of the test rows.
    """
    calibration, test = trained.scored(trained.parts.reference()), trained.scored(trained.parts.unseen())
    raw: dict[str, NDArray[Any]] = {
        "calibration_logits": calibration.logits,
        "calibration_labels": calibration.labels,
        "test_logits": test.logits,
        "test_labels": test.labels,
        "learned": trained.outcome.learned,
    }
    if cell.extras.get("largest_logits"):
        raw["largest"] = logits_of(trained.module, trained.data.inputs[trained.parts.train]).max(axis=1)
    for name in cell.extras.get("shifts", ()):
        if (scored := _shifted(name, trained)) is not None:
            raw[f"{name}/logits"], raw[f"{name}/labels"] = scored.logits, scored.labels
    stages = [name for name in ("confidnet", "confidnet_tuned") if cell.extras.get(name)]
    return raw | (_confidnet(trained, stages) if stages else {})


def measured_of(cell: Cell, raw: Raw) -> dict[str, Any]:
    """Return all measurements of a network that follow from its raw outputs, as plain values."""
    calibration = LabelledLogits(raw["calibration_logits"], raw["calibration_labels"])
    test = LabelledLogits(raw["test_logits"], raw["test_labels"])
    fitted = measure.post_hoc(calibration)
    methods = fitted.methods
    found: dict[str, Any] = {
        "temperature": fitted.temperature,
        "temperature_brent": measure.brent_temperature(calibration),
        "test": {name: measure.evaluation(method, test) for name, method in methods.items()},
        "curve": measure.ece_against_temperature(test),
        "confusion": measure.confusion(test),
        "density": {name: measure.density(methods[name], test) for name in ("none", "temperature")},
    }
    if sizes := cell.extras.get("validation_sizes"):
        found["validation_size"] = measure.by_validation_size(calibration, test, list(sizes), cell.config.seed)
    if "largest" in raw:
        found["largest_logits"] = measure.largest_logits(raw["largest"], raw["learned"])
    if shifts := cell.extras.get("shifts"):
        found["shift"] = dict.fromkeys(shifts)
        for name in (name for name in shifts if f"{name}/logits" in raw):
            scored = LabelledLogits(raw[f"{name}/logits"], raw[f"{name}/labels"])
            found["shift"][name] = {
                key: measure.headline(measure.evaluation(method, scored)) for key, method in methods.items()
            }
    right = (test.logits.argmax(axis=1) == test.labels).astype(np.int64)
    for name in ("confidnet", "confidnet_tuned"):
        if name in raw:
            found[name] = measure.of_confidences(raw[name].astype(np.float64), right)
    return found


def _shifted(name: str, trained: Trained) -> LabelledLogits | None:
    """Return logits under a corruption, `<name>@<severity>`, or on a data set of newer images; None if missing."""
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
    return LabelledLogits(logits_of(trained.module, images), labels)


def _confidnet(trained: Trained, stages: list[str]) -> dict[str, NDArray[Any]]:
    """Return ConfidNet's confidences in the network's answers to test rows, after its first stage and after both."""
    data, parts = trained.data, trained.parts
    rows, test = (data.array[parts.train], data.labels[parts.train]), data.array[parts.unseen()]
    found = {}
    network = fit_confidnet(trained.module, *rows, _recipe(trained, *_FIRST))
    if "confidnet" in stages:
        found["confidnet"] = confidences(network, trained.module, test)
    if "confidnet_tuned" in stages:
        both = fine_tuned(network, trained.module, *rows, _recipe(trained, *_SECOND))
        found["confidnet_tuned"] = confidences(*both, test)
    return found


def _recipe(trained: Trained, epochs: int, step: float) -> Recipe:
    config = trained.config
    return Recipe(epochs=epochs, batch_size=128, learning_rate=step, seed=config.seed, threads=config.threads)
