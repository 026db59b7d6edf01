"""From a configuration to a bundle, top to bottom."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bundle
from bundle import Architecture, BundleContents, DataRecord, Part, Profile, Reference, TrainingRecord
from bundle.report import headline
from calibrators import CALIBRATORS
from importing.report import make_report
from training.calibrate import calibrate
from training.config import OnStart, TrainConfig, choose
from training.data import Dataset
from training.determinism import deterministic
from training.diagrams import draw
from training.documents import check_folder, versions_of, without_nan
from training.epochs import Epoch, OnEpoch, OnStep
from training.errors import ConfigurationError, PoorModelError
from training.loop import device_of
from training.poor import poor
from training.team import ALONE, Team, team
from training.trained import Given, Trained, check_writable, learn, save
from training.trees import TREES
from training.trees.learn import GrownTrees
from training.trees.learn import learn as grow

_FEWEST_TEST_ROWS = 2  # or groups
_PACKAGES = ("candor", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "scipy", "torch")


def run(
    config: TrainConfig,
    root: Path,
    *,
    given: Given | None = None,
    weights: Path | None = None,
    keep: Path | None = None,
    on_start: OnStart | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    allow_poor: bool = False,
) -> Path:
    """See `training.train_bundle`."""
    check_folder(root)
    if config.calibrator is not None:
        choose("calibrator", CALIBRATORS, config.calibrator)
    with team(device_of(config).type) as together:
        if given is None:
            whole = config.read()
            config, notes = config.suited(whole)
            given = Given(*config.cut(whole), notes=notes)
        else:
            config, notes = config.suited(given.data, given.parts)
            given = replace(given, notes=notes)
        if config.model in TREES and (keep is not None or weights is not None or together.size > 1):
            raise ConfigurationError(
                f"{config.model} trains in one piece and in one process: run it without --keep, --save-weights and "
                "torchrun. An interruption leaves nothing behind"
            )
        if weights is not None:
            check_writable(weights)
        if on_start is not None and together.leads:
            on_start(replace(config, device="cpu" if device_of(config).type == "cpu" else "cuda"))
        trained = fit(config, given, keep=keep, on_epoch=on_epoch, on_step=on_step, team=together)

        def write() -> Path:
            if weights is not None and isinstance(trained, Trained):
                save(trained, weights)
            path = export_bundle(trained, root, allow_poor=allow_poor)
            if keep is not None:
                keep.unlink(missing_ok=True)
            return path

        return together.from_leader(write)


def fit(
    config: TrainConfig,
    given: Given,
    *,
    keep: Path | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    team: Team = ALONE,
) -> Trained | GrownTrees:
    """Train a network or trees; arguments and errors are those of `training.trained.learn`."""
    config = config.suited(given.data, given.parts)[0]
    if config.model in TREES:
        return grow(config, given.data, given.parts, given.notes, on_epoch)
    return learn(config, given=given, keep=keep, on_epoch=on_epoch, on_step=on_step, team=team)


def export_bundle(trained: Trained | GrownTrees, root: Path, *, allow_poor: bool) -> Path:
    """Calibrate a trained model on its held-out rows, export and check it, and write it as a bundle.

    Args:
        trained: The model with its configuration and data.
        root: Folder of bundles.
        allow_poor: Whether to write a model that `training.poor` finds useless.

    Returns:
        The bundle's folder, `<root>/<name>/<version>`.

    Raises:
        ConfigurationError: The calibrator is unknown, or the held-out rows do not determine it.
        ExportError: The exported graph differs from what was trained.
        PoorModelError: The model is of no use, and `allow_poor` is false.
        bundle.BundleError, OSError: The bundle could not be written.
    """
    config, data, parts = trained.config, trained.data, trained.parts
    with deterministic(config.seed, config.threads, strict=config.deterministic):
        reference = Reference(*map(trained.scored, (parts.fit, parts.certify, parts.gate)))
        test = trained.scored(parts.unseen()) if _units(data, parts.unseen()) >= _FEWEST_TEST_ROWS else None
        exported = trained.exported()
    together = None if data.together is None else data.together[parts.fit]
    calibrator = calibrate(config.calibrator or "temperature", reference.fit, together)
    report = make_report(reference, calibrator, data.label_names, test=test)
    problems = poor(reference, calibrator)
    if problems and not allow_poor:
        raise PoorModelError(problems)
    report["warnings"] += problems
    report["training"] = {
        "epochs": [_reported(epoch) for epoch in trained.outcome.epochs],
        "best_epoch": trained.outcome.best,
        "classes_without_rows": _never_seen(trained),
        "export_difference": exported.difference,
        "notes": list(trained.notes),
    }
    return bundle.write(
        root,
        BundleContents(
            model=config.model_name,
            labels=data.label_names,
            input=data.spec(resize=config.resize),
            model_bytes=exported.model,
            calibrator=calibrator,
            reference=reference,
            golden=exported.golden,
            graph=exported.graph,
            trees=exported.trees,
            architecture=Architecture(
                name=config.model,
                parameters=exported.parameters,
                config=exported.architecture,
            ),
            training=_record(trained),
            versions=versions_of(*_PACKAGES),
            metrics=headline(report),
            report=report,
            diagrams=draw(reference, calibrator),
            vocabulary=data.vocabulary,
            tokenizer=data.tokenizer,
            columns=data.columns,
            profile=_profile(trained),
        ),
    )


def _units(data: Dataset, rows: NDArray[np.int64]) -> int:
    """Return the number of rows, or of their groups."""
    return len(rows if data.groups is None else np.unique(data.groups[rows]))


def _profile(trained: Trained | GrownTrees) -> Profile | None:
    data, parts = trained.data, trained.parts
    if data.columns is None:
        return None
    counted = np.concatenate([parts.certify, parts.gate])
    group = None if data.groups is None else data.groups[counted]
    return Profile.of(data.columns, data.array[parts.fit], data.array[counted], group=group)


def _record(trained: Trained | GrownTrees) -> TrainingRecord:
    config = trained.config
    parts = trained.parts.sizes_and_digests()
    return TrainingRecord(
        dataset=config.dataset,
        seed=config.seed,
        splits={name: Part(rows=rows, sha256=digest) for name, (rows, digest) in parts.items()},
        data=DataRecord(options=config.data_options(), sources=dict(trained.data.sources)),
        **trained.described(),
    )


def _never_seen(trained: Trained | GrownTrees) -> list[str]:
    """Return the classes without training rows, which the network cannot recognise."""
    if isinstance(trained, Trained) and trained.weights is not None:
        return []
    seen = set(trained.data.labels[trained.parts.train].tolist())
    return [name for label, name in enumerate(trained.data.label_names) if label not in seen]


def _reported(epoch: Epoch) -> dict[str, Any]:
    """Return what depends on the seed alone and not on the speed of the machine."""
    document: dict[str, Any] = without_nan({"loss": epoch.loss, "accuracy": epoch.accuracy})
    if epoch.validation is not None:
        document["validation"] = without_nan(asdict(epoch.validation))
    return document
