"""Files written whole or not at all, and plain values for what they hold."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from training.errors import ConfigurationError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` at the end of the block, or leaves no trace if the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.unfinished")
    try:
        with unfinished.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # or a power cut may leave the new name with nothing in it
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


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
