"""Recipes that several studies start from; a study's own settings come after them."""

from __future__ import annotations

from typing import Any

CIFAR_RECIPE: dict[str, Any] = {
    "centred": True,
    "crop": 4,
    "flip": True,
    "train_rows": 0,
    "stratified": True,
    "batch_size": 128,
    "optimiser": "sgd",
    "learning_rate": 0.1,
    "device": "auto",
    "threads": 2,
}
"""What the published CIFAR runs have in common."""

TWO_CORES: dict[str, Any] = {
    "rows": 10_000,
    "reference_rows": 1500,
    "epochs": 15,
    "schedule": "cosine",
    "milestones": (),
    "warm_up": 1.0,
    "weight_decay": 1e-4,
    "precision": "bfloat16",
    "channels_last": True,
    "device": "cpu",
    "threads": 1,
}
"""What reduces a CIFAR run to minutes on two cores."""
