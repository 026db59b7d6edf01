"""Verification of bundles: complete, in the right folder, and the bundle that a revision was made from."""

from __future__ import annotations

from pathlib import Path

import bundle as bundles
from bundle import Bundle, BundleError, BundleLocation
from service.decisions.revision import Revision
from service.errors import BundleRefusedError

# In the Open Inference Protocol /v2/models/stats returns statistics of all models, not metadata of one.
TAKEN_NAMES = frozenset({"stats"})


def verified(path: Path) -> Bundle:
    """Return the bundle in any folder.

    Raises:
        BundleRefusedError: It is damaged or missing.
    """
    try:
        return bundles.verify(path)
    except BundleError as error:
        raise BundleRefusedError(
            f"Bundle {path} is refused: {error}",
            where=getattr(error, "file", None),
            remedy="Restore the folder as it was exported; do not change files in it.",
        ) from error


def verified_in_place(location: BundleLocation) -> Bundle:
    """Return the bundle at a location: of this model and version.

    Raises:
        BundleRefusedError: It is damaged or missing, belongs in another folder, or has a reserved name.
    """
    found = verified(location.path)
    manifest = found.manifest
    if manifest.model in TAKEN_NAMES:
        raise BundleRefusedError(
            f"Bundle {found.path} is refused: the model name {manifest.model!r} is reserved for a path of the service.",
            where="manifest.json",
            found=manifest.model,
            expected=f"any name except {', '.join(sorted(TAKEN_NAMES))}",
            remedy="Export it under another name: candor-train export … --name NAME.",
        )
    if (location.model, location.version) != (manifest.model, manifest.version):
        raise BundleRefusedError(
            f"Bundle {found.path} is refused: its manifest names another model or version.",
            where="manifest.json",
            found=f"{manifest.model}/{manifest.version}",
            expected=f"{location.model}/{location.version}",
            remedy="Keep each bundle in the folder <model>/<version> that its manifest names.",
        )
    return found


def bundle_of(folder: Path, revision: Revision) -> Bundle:
    """Return the bundle that a revision was made from.

    Args:
        folder: Folder of bundles.
        revision: The revision.

    Raises:
        BundleRefusedError: It is damaged, missing or a different bundle.
    """
    found = verified_in_place(bundles.locate(folder, revision.model, revision.bundle_version))
    if found.id != revision.bundle_id:
        raise BundleRefusedError(
            f"Bundle {found.path} differs from the bundle of revision {revision.id}.",
            where="manifest.json",
            found=found.id,
            expected=revision.bundle_id,
            remedy="Restore the original folder. Export a changed model as a new version.",
        )
    return found
