"""The checkpoint of an interrupted run: one file with everything needed to continue."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bundle.whole_file import whole_file
from training.errors import ConfigurationError

_VERSION = 3
_REMEDY = "; remove it to start again, or name another file"


def write(path: Path, recipe: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write or replace a checkpoint, whole or not at all.

    Args:
        path: The file.
        recipe: Settings of the run by name; plain values.
        state: Tensors and plain values, nested in mappings and lists.

    Raises:
        OSError: The file cannot be written.
    """
    with whole_file(path) as stream:
        try:
            torch.save({"version": _VERSION, "recipe": dict(recipe), "state": dict(state)}, stream)
        except RuntimeError as error:  # PyTorch's writer hides the system's own error
            raise OSError(f"{path} cannot be written: {error.__context__ or error}") from error


def read(path: Path, recipe: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the state that `write` saved; None if there is no file. Nothing in the file is executed.

    Args:
        path: The file.
        recipe: Settings of the present run.

    Raises:
        ConfigurationError: The file is not a checkpoint, or belongs to a run with other settings.
    """
    if not path.exists():
        return None
    content = io.BytesIO(path.read_bytes())
    try:
        found = torch.load(content, map_location="cpu", weights_only=True)
        version, before, state = found["version"], found["recipe"], found["state"]
    except Exception as error:  # PyTorch's reader raises errors of any kind on a file of another kind
        raise ConfigurationError(f"{path} is not a valid checkpoint of a training run{_REMEDY}") from error
    if version != _VERSION:
        raise ConfigurationError(f"{path} is a checkpoint of version {version}, expected {_VERSION}{_REMEDY}")
    differing = sorted(name for name in before.keys() | recipe.keys() if before.get(name) != recipe.get(name))
    if differing:
        told = "; ".join(f"{name} was {before.get(name)!r} and is {recipe.get(name)!r}" for name in differing)
        raise ConfigurationError(f"{path} belongs to another run: {told}{_REMEDY}")
    kept: dict[str, Any] = state
    return kept
