"""Where bundles lie under a root: `<root>/<model>/<version>/`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bundle.errors import BundleError
from bundle.manifest import MODEL_NAME

_MODEL = re.compile(MODEL_NAME)
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, order=True)
class BundleLocation:
    """A folder that is named like a bundle; nothing in it has been read.

    Attributes:
        model: Name of the model.
        version: Version of the model, from 1.
        path: The folder.
    """

    model: str
    version: int
    path: Path


def find(root: Path) -> list[BundleLocation]:
    """The bundles under a root, by model, then by version.

    Folders of a write that was interrupted have other names and are not among them.

    Args:
        root: Folder of bundles; it need not exist.

    Raises:
        BundleError: The folder cannot be read.
    """
    try:
        return sorted(
            BundleLocation(model.name, version, model / str(version))
            for model in (root.iterdir() if root.is_dir() else ())
            if _MODEL.fullmatch(model.name) and model.is_dir()
            for version in versions(model)
        )
    except OSError as error:
        raise BundleError(f"{root} cannot be read", found=str(error), expected="a readable folder") from error


def versions(folder: Path) -> list[int]:
    """The versions in a model's folder, ascending."""
    return sorted(int(entry.name) for entry in folder.iterdir() if _VERSION.fullmatch(entry.name) and entry.is_dir())
