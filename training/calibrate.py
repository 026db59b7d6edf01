"""Fitting a calibrator on held-out rows, during training or for an existing bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import bundle
from bundle import BundleContents, LabelledLogits
from bundle.report import headline
from calibrators import CALIBRATORS, CalibrationError, Calibrator
from importing.report import make_report
from training.config import choose
from training.diagrams import draw
from training.errors import ConfigurationError


def calibrate(name: str, rows: LabelledLogits, together: NDArray[np.int64] | None = None) -> Calibrator:
    """Fit a calibrator.

    Args:
        name: Key of `calibrators.CALIBRATORS`.
        rows: Held-out rows; the reference's fit rows.
        together: Numbers of rows that folds keep together, (n,); None for the groups of the rows.

    Raises:
        ConfigurationError: The calibrator is unknown, or these rows do not determine it.
    """
    calibrator = choose("calibrator", CALIBRATORS, name)()
    try:
        return calibrator.fit_grouped(
            rows.logits, rows.labels, rows.group if together is None else together, rows.weight
        )
    except CalibrationError as error:
        raise ConfigurationError(f"{name} cannot be fitted on {len(rows.labels)} reference rows: {error}") from error


def calibrate_bundle(path: Path, name: str) -> Path:
    """Fit another calibrator on a bundle's reference rows and write the model's next version, otherwise unchanged.

    Args:
        path: The bundle, `<root>/<model>/<version>`.
        name: Key of `calibrators.CALIBRATORS`.

    Returns:
        The new bundle's folder, beside the old one.

    Raises:
        ConfigurationError: The calibrator is unknown, these rows do not determine it, or the folder's name is not the
            model's.
        bundle.BundleError: The bundle is damaged.
    """
    old = bundle.verify(path)
    manifest = old.manifest
    folder = path.resolve().parent
    if folder.name != manifest.model:
        raise ConfigurationError(
            f"the bundle is in folder {folder.name!r}, expected the name of its model, {manifest.model!r}"
        )
    calibrator = calibrate(name, old.reference.fit)
    positive = old.report.get("positive", {}).get("label")
    report = make_report(old.reference, calibrator, manifest.labels, positive)
    if "training" in old.report:
        report["training"] = old.report["training"]
    return bundle.write(
        folder.parent,
        BundleContents(
            model=manifest.model,
            labels=manifest.labels,
            input=manifest.input,
            model_bytes=old.model_bytes,
            calibrator=calibrator,
            reference=old.reference,
            golden=old.golden,
            graph=manifest.graph,
            trees=old.trees,
            architecture=manifest.architecture,
            training=manifest.training,
            versions=manifest.versions,
            metrics=headline(report),
            report=report,
            diagrams=draw(old.reference, calibrator),
            vocabulary=old.vocabulary,
            columns=old.columns,
            profile=old.profile,
            tokenizer=old.tokenizer,
            source=manifest.source,
            imported=manifest.imported,
            label_of=manifest.label_of,
        ),
    )
