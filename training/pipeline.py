"""From a configuration to a bundle, top to bottom."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import bundle
from bundle import Architecture, BundleContents, DataRecord, Loss, Part, Profile, Reference, TrainingRecord
from bundle.report import headline, make_report
from calibrators import CALIBRATORS
from training import export
from training.calibrate import calibrate
from training.config import TrainConfig, choose
from training.determinism import deterministic
from training.diagrams import draw
from training.documents import versions_of, without_nan
from training.epochs import Epoch, OnEpoch
from training.loop import device_of
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
    on_epoch: OnEpoch | None = None,
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
        trained: The network with its configuration and data.
        root: Folder of bundles.

    Returns:
        The bundle's folder, `<root>/<name>/<version>`.

    Raises:
        ConfigurationError: The calibrator is unknown, or the held-out rows do not determine it.
        ExportError: The exported graph differs from the network.
        bundle.BundleError, OSError: The bundle could not be written.
    """
    config, data, parts, module = trained.config, trained.data, trained.parts, trained.module
    with deterministic(config.seed, config.threads):
        reference = Reference(*map(trained.scored, (parts.fit, parts.certify, parts.gate)))
        test = trained.scored(parts.unseen()) if len(parts.unseen()) >= _FEWEST_TEST_ROWS else None
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
            versions=versions_of(*_PACKAGES),
            metrics=headline(report),
            report=report,
            diagrams=draw(reference, calibrator),
            vocabulary=data.vocabulary,
            columns=data.columns,
            profile=_profile(trained),
        ),
    )


def _profile(trained: Trained) -> Profile | None:
    data, parts = trained.data, trained.parts
    if data.columns is None:
        return None
    counted = np.concatenate([parts.certify, parts.gate])
    return Profile.of(data.columns, data.inputs[parts.fit], data.inputs[counted])


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
    """Return the classes without training rows, which the network cannot recognise."""
    if trained.weights is not None:
        return []
    seen = set(trained.data.labels[trained.parts.train].tolist())
    return [name for label, name in enumerate(trained.data.label_names) if label not in seen]


def _reported(epoch: Epoch) -> dict[str, Any]:
    """Return what depends on the seed alone and not on the speed of the machine."""
    document: dict[str, Any] = {"loss": epoch.loss, "accuracy": epoch.accuracy}
    if epoch.validation is not None:
        document["validation"] = without_nan(asdict(epoch.validation))
    return document
