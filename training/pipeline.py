"""From a configuration to a bundle, top to bottom."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

import bundle
from bundle import Architecture, BundleContents, InputSpec, LabelledLogits, Loss, Part, Reference, TrainingRecord
from calibrators import CALIBRATORS
from training import export
from training.calibrate import calibrate
from training.config import TrainConfig, choose
from training.data import DATASETS, Dataset
from training.determinism import deterministic
from training.diagrams import draw
from training.loop import Epoch, train
from training.losses import LOSSES
from training.models import MODELS
from training.preprocess import ImageInput, channel_rms
from training.report import headline, make_report

_PACKAGES = ("candor", "numpy", "onnx", "onnxruntime", "scipy", "torch")


def run(config: TrainConfig, root: Path, *, on_epoch: Callable[[Epoch], None] | None = None) -> Path:
    """See `training.train_bundle`."""
    data = choose("data set", DATASETS, config.dataset)()
    loss = choose("loss", LOSSES, config.loss)
    architecture = choose("model", MODELS, config.model)
    choose("calibrator", CALIBRATORS, config.calibrator)
    parts = config.splits(len(data))
    with deterministic(config.seed, config.threads):
        network = architecture(data.images.shape[3], len(data.label_names), dropout=config.dropout)
        module = nn.Sequential(ImageInput(channel_rms(data.images[parts.train]), architecture.size), network)
        history = train(
            module,
            partial(loss, **config.coefficients),
            data.images[parts.train],
            data.labels[parts.train],
            epochs=config.epochs,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate,
            seed=config.seed,
            on_epoch=on_epoch,
        )
        reference = Reference(*(_held_out(module, data, rows) for rows in (parts.fit, parts.certify, parts.gate)))
        golden = export.make_golden(module, data.images[parts.fit])
        model_bytes = export.to_onnx(module, golden.inputs)
    difference = export.check(model_bytes, golden)
    calibrator = calibrate(config.calibrator, reference.fit)
    report = make_report(reference, calibrator)
    report["training"] = {
        "epochs": [{"loss": epoch.loss, "accuracy": epoch.accuracy} for epoch in history],
        "export_difference": difference,
    }
    return bundle.write(
        root,
        BundleContents(
            model=config.name or config.dataset,
            labels=data.label_names,
            input=InputSpec(kind="image", dtype="uint8", shape=data.images.shape[1:], resize=config.resize),
            model_bytes=model_bytes,
            calibrator=calibrator,
            reference=reference,
            golden=golden,
            architecture=Architecture(
                name=config.model,
                parameters=sum(parameter.numel() for parameter in module.parameters()),
                config={"dropout": config.dropout},
            ),
            training=TrainingRecord(
                dataset=config.dataset,
                loss=Loss(name=config.loss, coefficients=dict(config.coefficients)),
                seed=config.seed,
                epochs=config.epochs,
                batch_size=config.batch_size,
                optimiser="adam",
                learning_rate=config.learning_rate,
                splits={
                    name: Part(rows=rows, sha256=digest) for name, (rows, digest) in parts.sizes_and_digests().items()
                },
            ),
            versions={"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}},
            metrics=headline(report),
            report=report,
            diagrams=draw(reference, calibrator),
        ),
    )


def _held_out(module: nn.Module, data: Dataset, rows: NDArray[np.int64]) -> LabelledLogits:
    return LabelledLogits(export.logits_of(module, data.images[rows]), data.labels[rows])
