"""Fitting a calibrator on held-out rows, while training or on a bundle that is there already."""

from __future__ import annotations

from pathlib import Path

import bundle
from bundle import BundleContents, LabelledLogits
from calibrators import CALIBRATORS, CalibrationError, Calibrator
from training.config import choose
from training.diagrams import draw
from training.errors import ConfigurationError
from training.report import headline, make_report


def calibrate(name: str, rows: LabelledLogits) -> Calibrator:
    """Fit a calibrator.

    Args:
        name: Key of `calibrators.CALIBRATORS`.
        rows: Held-out rows; the reference's fit rows.

    Raises:
        ConfigurationError: No such calibrator, or these rows do not determine it.
    """
    calibrator = choose("calibrator", CALIBRATORS, name)()
    try:
        return calibrator.fit(rows.logits, rows.labels)
    except CalibrationError as error:
        raise ConfigurationError(f"{name} cannot be fitted on {len(rows.labels)} reference rows: {error}") from error


def calibrate_bundle(path: Path, name: str) -> Path:
    """Fit another calibrator on a bundle's reference rows and write the model's next version with it.

    The network, its reference rows and its golden inputs stay as they are.

    Args:
        path: The bundle, `<root>/<model>/<version>`.
        name: Key of `calibrators.CALIBRATORS`.

    Returns:
        The new bundle's folder, beside the old one.

    Raises:
        ConfigurationError: No such calibrator, these rows do not determine it, or the folder has another model's name.
        bundle.BundleError: The bundle is damaged.
    """
    old = bundle.verify(path)
    manifest = old.manifest
    folder = path.resolve().parent
    if folder.name != manifest.model:
        raise ConfigurationError(f"the bundle lies in folder {folder.name!r}, expected its model's, {manifest.model!r}")
    calibrator = calibrate(name, old.reference.fit)
    report = make_report(old.reference, calibrator)
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
            architecture=manifest.architecture,
            training=manifest.training,
            versions=manifest.versions,
            metrics=headline(report),
            report=report,
            diagrams=draw(old.reference, calibrator),
            vocabulary=old.vocabulary,
            columns=old.columns,
        ),
    )
