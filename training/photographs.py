"""The recipe for photographs where a run does not name one: without it, a network learns a few thousand by heart.

Label smoothing, mixup and CutMix are left out: they move the probabilities that a bundle calibrates and certifies.
RandAugment and random erasing are left out: they need torchvision, and change one image after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from training.data import Dataset
from training.data.dataset import Rows

if TYPE_CHECKING:
    from training.config import TrainConfig

BY_DATA = ("crop", "flip", "weight_decay", "average")
"""Settings that this module chooses."""

_BORDER = 8
"""Pixels of an image's shorter side for each of `crop`: 4 for 32 × 32 pixels, as is usual there."""

_WEIGHT_DECAY = {"adam": 0.05, "sgd": 5e-4}
_AVERAGE = 0.995
_SHOWN = 64
_NOT_MIRRORED = ("svhn",)


def suited(config: TrainConfig, data: Dataset, train: Rows) -> tuple[dict[str, Any], str | None]:
    """Return what the settings `config.by_data` are for photographs, and why; nothing for other data.

    Photographs have three channels that differ. Digits and scans in grey do not, and must not be mirrored.

    Args:
        config: The run's settings.
        data: The data set.
        train: The training rows, or all rows from which they come.

    Returns:
        Values by name, and a sentence; nothing and None if the data contain no photographs.
    """
    if not config.by_data or not _in_colour(data, train):
        return {}, None
    chosen = {
        "crop": min(data.inputs.shape[1:3]) // _BORDER,
        "flip": data.name.partition(":")[0] not in _NOT_MIRRORED,
        "weight_decay": _WEIGHT_DECAY[config.optimiser],
        "average": _AVERAGE,
    }
    chosen = {name: value for name, value in chosen.items() if name in config.by_data}
    told = " ".join(_typed(name.replace("_", "-"), value) for name, value in chosen.items())
    return chosen, f"The images are photographs: {told} keep a network from learning them by heart; --plain does not."


def _typed(name: str, value: float) -> str:
    return f"--{name} {value}" if not isinstance(value, bool) else f"--{name}" if value else f"--no-{name}"


def _in_colour(data: Dataset, rows: Rows) -> bool:
    if data.kind != "image" or data.inputs.shape[3] != 3:
        return False
    some = np.asarray(data.inputs[rows[:: max(1, len(rows) // _SHOWN)][:_SHOWN]])
    return bool((some != some[..., :1]).any())
