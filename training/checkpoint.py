"""A run that was interrupted, in one file: everything that its continuation depends on."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from training.errors import ConfigurationError

_VERSION = 2
_REMEDY = "; remove it to begin anew, or name another file"


def write(path: Path, recipe: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write a checkpoint, whole or not at all; an older one in its place is replaced.

    Args:
        path: The file.
        recipe: What the run was asked to do, by name; plain values.
        state: Tensors and plain values, nested in mappings and lists.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as stream:
            torch.save({"version": _VERSION, "recipe": dict(recipe), "state": dict(state)}, stream)
            stream.flush()
            os.fsync(stream.fileno())  # or a power cut may leave the new name with nothing in it
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: Path, recipe: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state that `write` kept; None where there is no file. Nothing in the file is run.

    Args:
        path: The file.
        recipe: What the run is asked to do now.

    Raises:
        ConfigurationError: This is no checkpoint, or one of a run that was asked for something else.
    """
    if not path.exists():
        return None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        version, before, state = found["version"], found["recipe"], found["state"]
    except (OSError, EOFError, RuntimeError, KeyError, TypeError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise ConfigurationError(f"{path} is no checkpoint of a training run: {error}{_REMEDY}") from error
    if version != _VERSION:
        raise ConfigurationError(f"{path} is a checkpoint of version {version}, expected {_VERSION}{_REMEDY}")
    differing = sorted(name for name in before.keys() | recipe.keys() if before.get(name) != recipe.get(name))
    if differing:
        told = "; ".join(f"{name} was {before.get(name)!r} and is {recipe.get(name)!r}" for name in differing)
        raise ConfigurationError(f"{path} belongs to another run: {told}{_REMEDY}")
    kept: dict[str, Any] = state
    return kept
