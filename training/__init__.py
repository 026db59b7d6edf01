"""Training: data sets, architectures, losses, the loop, calibration, export. The only package that uses torch.

    training.train_bundle(training.TrainConfig(dataset="digits"), root) → <root>/digits/1
    training.candor_train(network, (images, labels), out=root, name="mine") → <root>/mine/1

`training.data` and `training.config` do not import torch, and neither does this module until a bundle is trained.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.config import OnStart, TrainConfig
    from training.epochs import OnEpoch, OnStep
    from training.errors import (
        ConfigurationError,
        DataError,
        DivergedError,
        ExportError,
        PoorModelError,
        TrainingError,
    )
    from training.in_memory import candor_train

__all__ = [
    "ConfigurationError",
    "DataError",
    "DivergedError",
    "ExportError",
    "PoorModelError",
    "TrainConfig",
    "TrainingError",
    "candor_train",
    "train_bundle",
]

_ELSEWHERE = {"TrainConfig": "config", "candor_train": "in_memory"}


def __getattr__(name: str) -> object:
    """Import what is named on first use: the command handles Ctrl-C before anything large is imported."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"training.{_ELSEWHERE.get(name, 'errors')}"), name)
    return found


def train_bundle(
    config: TrainConfig,
    root: Path,
    *,
    weights: Path | None = None,
    keep: Path | None = None,
    on_start: OnStart | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    allow_poor: bool = False,
) -> Path:
    """Train, calibrate, export and check a model, and write it as a bundle: all of it or nothing.

    Args:
        config: The run's settings.
        root: Folder of bundles.
        weights: File to save the trained network to as well, for `candor-train export`; None for none.
        keep: Checkpoint file, written after each epoch and removed once the bundle is written. A run that was
            interrupted, or whose bundle could not be written, continues from it.
        on_start: Called before the first epoch with the settings, in which nothing is left to the data or the machine.
        on_epoch: Called after every epoch.
        on_step: Called after every step of a network.
        allow_poor: Whether to write a model that has collapsed, or whose calibrator is at its bound.

    Returns:
        The bundle's folder, `<root>/<name>/<version>`.

    Raises:
        ConfigurationError: A setting is invalid.
        DivergedError: The loss became NaN or infinite.
        ExportError: The exported graph differs from what was trained.
        PoorModelError: The model is of no use, and `allow_poor` is false.
        bundle.BundleError, OSError: The bundle could not be written.
    """
    from training.pipeline import run  # imports torch

    return run(
        config,
        root,
        weights=weights,
        keep=keep,
        on_start=on_start,
        on_epoch=on_epoch,
        on_step=on_step,
        allow_poor=allow_poor,
    )
