"""From a configuration to a bundle, top to bottom."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

import bundle
from bundle import Architecture, BundleContents, DataRecord, LabelledLogits, Loss, Part, Reference, TrainingRecord
from calibrators import CALIBRATORS
from training import export
from training.calibrate import calibrate
from training.config import TrainConfig, choose
from training.data import Dataset
from training.determinism import deterministic
from training.diagrams import draw
from training.loop import Epoch, device_of
from training.report import headline, make_report
from training.team import team
from training.trained import Trained, learn, save

_FEWEST_TEST_ROWS = 2
_PACKAGES = ("candor", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "scipy", "torch")


def run(
    config: TrainConfig,
    root: Path,
    *,
    weights: Path | None = None,
    keep: Path | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Path:
    """See `training.train_bundle`."""
    choose("calibrator", CALIBRATORS, config.calibrator)
    with team(device_of(config).type) as together:
        trained = learn(config, keep=keep, on_epoch=on_epoch, team=together)

        def write() -> Path:
            if weights is not None:
                save(trained, weights)
            return export_bundle(trained, root)

        return together.from_leader(write)


def export_bundle(trained: Trained, root: Path) -> Path:
    """Calibrate a trained network on its held-out rows, export and check it, and write it as a bundle.

    Args:
        trained: The network, its configuration and its data.
        root: Folder of bundles.

    Returns:
        The bundle's folder, `<root>/<name>/<version>`.

    Raises:
        ConfigurationError: No such calibrator, or the held-out rows do not determine it.
        ExportError: The exported graph does not do what the network does.
        bundle.BundleError, OSError: The bundle could not be written.
    """
    config, data, parts, module = trained.config, trained.data, trained.parts, trained.module
    with deterministic(config.seed, config.threads):
        reference = Reference(*(_held_out(module, data, rows) for rows in (parts.fit, parts.certify, parts.gate)))
        test = _held_out(module, data, parts.unseen()) if len(parts.unseen()) >= _FEWEST_TEST_ROWS else None
        golden = export.make_golden(module, data.inputs[parts.fit], data.vocabulary)
        model_bytes = export.to_onnx(module, golden.inputs)
    difference = export.check(model_bytes, golden)
    calibrator = calibrate(config.calibrator, reference.fit)
    report = make_report(reference, calibrator, test)
    report["training"] = {
        "epochs": [_reported(epoch) for epoch in trained.outcome.epochs],
        "best_epoch": trained.outcome.best,
        "classes_without_rows": _never_seen(trained),
        "export_difference": difference,
    }
    return bundle.write(
        root,
        BundleContents(
            model=config.model_name,
            labels=data.label_names,
            input=data.spec(resize=config.resize),
            model_bytes=model_bytes,
            calibrator=calibrator,
            reference=reference,
            golden=golden,
            architecture=Architecture(
                name=config.model,
                parameters=sum(parameter.numel() for parameter in module.parameters()),
                config={"dropout": config.dropout, "centred": config.centred},
            ),
            training=_record(trained),
            versions=_versions(),
            metrics=headline(report),
            report=report,
            diagrams=draw(reference, calibrator),
            vocabulary=data.vocabulary,
            columns=data.columns,
        ),
    )


def _record(trained: Trained) -> TrainingRecord:
    config = trained.config
    parts = trained.parts.sizes_and_digests()
    how: dict[str, Any] = {"epochs": 0, "weights": trained.weights}
    if trained.weights is None:
        how = {
            "loss": Loss(name=config.loss, coefficients=dict(config.coefficients)),
            "epochs": config.epochs,
            "batch_size": config.batch_size,
            "optimiser": config.optimiser,
            "learning_rate": config.learning_rate,
            "recipe": config.recipe(),
        }
    return TrainingRecord(
        dataset=config.dataset,
        seed=config.seed,
        splits={name: Part(rows=rows, sha256=digest) for name, (rows, digest) in parts.items()},
        data=DataRecord(options=config.data_options(), sources=dict(trained.data.sources)),
        **how,
    )


def _never_seen(trained: Trained) -> list[str]:
    """Classes that no training row is of, so that the network cannot know them."""
    if trained.weights is not None:
        return []
    seen = set(trained.data.labels[trained.parts.train].tolist())
    return [name for label, name in enumerate(trained.data.label_names) if label not in seen]


def _reported(epoch: Epoch) -> dict[str, Any]:
    """What depends on the seed alone, and not on how fast the machine was."""
    document: dict[str, Any] = {"loss": epoch.loss, "accuracy": epoch.accuracy}
    if epoch.validation is not None:
        # JSON has no word for what is not a number.
        values = asdict(epoch.validation).items()
        document["validation"] = {name: value if math.isfinite(value) else None for name, value in values}
    return document


def _held_out(module: nn.Module, data: Dataset, rows: NDArray[np.int64]) -> LabelledLogits:
    return LabelledLogits(export.logits_of(module, data.inputs[rows]), data.labels[rows])


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # one of the two runtimes is there, not both
    return found
