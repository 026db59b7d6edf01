"""Files written whole or not at all, and plain values for what they hold."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from training.errors import ConfigurationError


def check_folder(folder: Path, use: str = "for new bundles") -> None:
    """Raise ConfigurationError, before any work, if no file can be written below a folder; it need not exist yet.

    Args:
        folder: The folder.
        use: What it is for.
    """
    place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be written ({place}: {error.strerror}), expected a folder {use}"
        ) from error


def without_nan(value: Any) -> Any:
    """Return a JSON-able value with null in place of NaN and infinity."""
    if isinstance(value, Mapping):
        return {name: without_nan(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed, by name."""
    found = {"python": sys.version.split()[0]}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
