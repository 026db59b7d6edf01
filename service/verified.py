"""Bundles as the service takes them: whole, and the very one that a revision was made from."""

from __future__ import annotations

from pathlib import Path

import bundle as bundles
from bundle import Bundle, BundleError
from service.errors import BundleRefusedError
from service.revision import Revision

# In the Open Inference Protocol /v2/models/stats is what all models have done, and not the metadata of one.
TAKEN_NAMES = frozenset({"stats"})


def verified(path: Path) -> Bundle:
    """Return the bundle in a folder, wherever that lies.

    Raises:
        BundleRefusedError: It is damaged or gone.
    """
    try:
        return bundles.verify(path)
    except BundleError as error:
        raise BundleRefusedError(
            f"Bundle {path} is refused: {error}",
            where=getattr(error, "file", None),
            remedy="Restore the folder from where it was exported; nothing in it may change.",
        ) from error


def verified_in_place(path: Path) -> Bundle:
    """Return the bundle in a folder of the service's, `<model>/<version>`.

    Raises:
        BundleRefusedError: It is damaged, gone, belongs into another folder, or has a name that no model can have.
    """
    found = verified(path)
    manifest = found.manifest
    if manifest.model in TAKEN_NAMES:
        raise BundleRefusedError(
            f"Bundle {path} is refused: no model can be called {manifest.model!r}, which is a path of the service.",
            where="manifest.json",
            found=manifest.model,
            expected=f"any other name than {', '.join(sorted(TAKEN_NAMES))}",
            remedy="Export it under another name: candor-train export … --name NAME.",
        )
    if (path.parent.name, path.name) != (manifest.model, str(manifest.version)):
        raise BundleRefusedError(
            f"Bundle {path} is refused: its manifest names another model or version.",
            where="manifest.json",
            found=f"{manifest.model}/{manifest.version}",
            expected=f"{path.parent.name}/{path.name}",
            remedy="Move it to the folder that its manifest names.",
        )
    return found


def bundle_of(folder: Path, revision: Revision) -> Bundle:
    """Return the bundle that a revision was made from.

    Args:
        folder: Where bundles lie.
        revision: The revision.

    Raises:
        BundleRefusedError: It is damaged, gone or another one.
    """
    found = verified_in_place(folder / revision.model / str(revision.bundle_version))
    if found.id != revision.bundle_id:
        raise BundleRefusedError(
            f"Bundle {found.path} is not the one that revision {revision.id} was made from.",
            where="manifest.json",
            found=found.id,
            expected=revision.bundle_id,
            remedy="Put the original folder back; a changed model belongs into a new version.",
        )
    return found
