"""Weights published elsewhere, for the same architecture under other names.

| architecture | layout | names there → here |
|---|---|---|
| ResNet-20, 32, 44, 56, 110 | the widespread one with option-A shortcuts | the same |
| ResNet-18, ResNet-50 | torchvision's names, stem for small images | `fc` → `linear`, `downsample` → `shortcut` |
| ResNet-50 (ImageNet) | torchvision | `fc` → `linear`, all others get the prefix `resnet.` |
| all others | ours | the same |

For every layout, the prefix `module.` of data-parallel training is dropped, weights may be in a dictionary under
`state_dict`, `model_state_dict`, `model` or `net`, and counts of batches (`num_batches_tracked`) may be missing. All
other weights are required, unexpected ones are refused, and all shapes must agree.

Published weights expect the preprocessing of their training: `candor-train import` puts mean and standard deviation
into the graph (`training.imported`).
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from training.errors import ConfigurationError
from training.models.imagenet_resnet50 import ImageNetResNet50
from training.models.network import Network
from training.models.resnet import ResNet

_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
_FORMATS = ".pt, .pth, .th (PyTorch), .npz (NumPy) or .safetensors"
_LISTED = 8

_COUNTS: Final = "num_batches_tracked"
# Pattern and replacement, applied in this order to every name.
_NAMES: tuple[tuple[type[Network], tuple[tuple[str, str], ...]], ...] = (
    (ImageNetResNet50, ((r"^(?!fc\.|linear\.|resnet\.)", "resnet."), (r"^fc\.", "linear."))),
    (ResNet, ((r"^fc\.", "linear."), (r"\.downsample\.", ".shortcut."))),
)


def load_published(network: nn.Module, path: Path) -> None:
    """Load the weights of a file into a network, all or none; nothing in the file is executed.

    Args:
        network: The `Network` of the weights.
        path: A state dictionary: `.pt`, `.pth` or `.th` as `torch.save` writes it (read with `weights_only`), `.npz`
            with one array for each name, or `.safetensors`.

    Raises:
        ConfigurationError: The file cannot be read, or weights are missing, unexpected or of another shape; the message
            lists them.
    """
    load_whole(network, {_named_here(network, name): tensor for name, tensor in read_weights(path).items()}, path)


def load_whole(
    network: nn.Module, there: Mapping[str, Tensor], source: Path | str, new: Collection[str] = frozenset()
) -> None:
    """Load a state dictionary into a network, all or none.

    Args:
        network: The network.
        there: Tensors by the network's names. Counts of batches may be left out.
        source: Where they are from, for the message.
        new: Names that may be left out too: these keep their values.

    Raises:
        ConfigurationError: Tensors are missing, unexpected or of another shape; the message lists them.
    """
    here = network.state_dict()
    missing = sorted(name for name in here.keys() - there.keys() - set(new) if not name.endswith(_COUNTS))
    strange = sorted(there.keys() - here.keys())
    shapes = [
        f"{name} {tuple(there[name].shape)}, expected {tuple(here[name].shape)}"
        for name in sorted(here.keys() & there.keys())
        if here[name].shape != there[name].shape
    ]
    problems = [
        f"{what}: {first(names)}"
        for what, names in (("missing", missing), ("unexpected", strange), ("of another shape", shapes))
        if names
    ]
    if problems:
        raise ConfigurationError(
            f"{source} does not contain the weights of {type(network).__name__}; " + "; ".join(problems)
        )
    here.update(there)  # keeps the versions of the modules, which files do not have and MNASNet asks for
    network.load_state_dict(here)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the state dictionary in a file; nothing in it is executed.

    Raises:
        ConfigurationError: The file cannot be read, or is not a state dictionary.
    """
    return _weights(_read(path), path)


def _named_here(network: nn.Module, name: str) -> str:
    name = re.sub(r"^module\.", "", name)
    for architecture, rules in _NAMES:
        if isinstance(network, architecture):
            for pattern, replacement in rules:
                name = re.sub(pattern, replacement, name)
    return name


def _read(path: Path) -> Any:
    """Return the content of the file: a mapping, if it is valid."""
    try:
        match path.suffix:
            case ".npz":
                with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                    return {name: torch.from_numpy(archive[name]) for name in archive.files}
            case ".safetensors":
                return safetensors.torch.load_file(path)
            case ".pt" | ".pth" | ".th":
                return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file, expected weights") from None
    except (
        *(OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError),
        *(zipfile.BadZipFile, pickle.UnpicklingError, safetensors.SafetensorError),
    ) as error:
        reason: object = error
        if isinstance(error, pickle.UnpicklingError):  # PyTorch's text says how to run the code in the file
            reason = "it has objects other than tensors, or is damaged. Save model.state_dict() alone, not the model"
        raise ConfigurationError(f"{path} does not contain weights that can be read safely: {reason}") from error
    raise ConfigurationError(f"{path}: expected a name that ends in {_FORMATS}")


def _weights(document: Any, path: Path) -> dict[str, Tensor]:
    """Return the state dictionary in a file's content."""
    for wrapper in _WRAPPERS:
        if isinstance(document, Mapping) and isinstance(document.get(wrapper), Mapping):
            document = document[wrapper]
    if not isinstance(document, Mapping) or not all(isinstance(value, Tensor) for value in document.values()):
        raise ConfigurationError(f"{path} is not a state dictionary, expected a tensor for each name")
    return {str(name): value for name, value in document.items()}


def first(names: list[str]) -> str:
    """Return the first of several names, for an error."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
