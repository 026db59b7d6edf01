"""Locations of bundles under a root: `<root>/<model>/<version>/`, or a single bundle that is the root itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bundle.errors import BundleError
from bundle.manifest import MANIFEST_FILE, MODEL_NAME
from bundle.reader import read_manifest

_MODEL = re.compile(MODEL_NAME)
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, order=True)
class BundleLocation:
    """A folder that should contain a bundle; its files have not been verified.

    Attributes:
        model: Name of the model.
        version: Version of the model, from 1.
        path: The folder.
    """

    model: str
    version: int
    path: Path


def find(root: Path) -> list[BundleLocation]:
    """List the bundles under a root, by model, then by version, without those of interrupted writes.

    Args:
        root: Folder of bundles, or of a single one; may be missing.

    Raises:
        BundleDamagedError: The root is a single bundle and its manifest is damaged.
        BundleFormatError: The root is a single bundle of an unknown schema.
        BundleError: The folder cannot be read.
    """
    try:
        if is_single(root):
            manifest = read_manifest(root)
            return [BundleLocation(manifest.model, manifest.version, root)]
        return sorted(
            BundleLocation(model.name, version, model / str(version))
            for model in (root.iterdir() if root.is_dir() else ())
            if _MODEL.fullmatch(model.name) and model.is_dir()
            for version in versions(model)
        )
    except OSError as error:
        raise BundleError(f"{root} cannot be read", found=str(error), expected="a readable folder") from error


def locate(root: Path, model: str, version: int) -> BundleLocation:
    """Return where a root has a bundle, if it has it."""
    return BundleLocation(model, version, root if is_single(root) else root / model / str(version))


def is_single(root: Path) -> bool:
    """Return whether a root is a bundle itself, as KServe mounts one."""
    return (root / MANIFEST_FILE).is_file()


def versions(folder: Path) -> list[int]:
    """Return the versions in a model's folder, ascending."""
    return sorted(int(entry.name) for entry in folder.iterdir() if _VERSION.fullmatch(entry.name) and entry.is_dir())
