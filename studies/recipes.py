"""Recipes that several studies start from."""

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
"""Common settings of the published CIFAR runs."""

TWO_CORES: dict[str, Any] = {
    "rows": 10_000,
    "validation_rows": 500,
    "reference_rows": 1500,
    "crop": 0,
    "flip": False,
    "epochs": 12,
    "schedule": "cosine",
    "milestones": (),
    "warm_up": 1.0,
    "weight_decay": 1e-4,
    "precision": "bfloat16",
    "channels_last": True,
    "device": "cpu",
    "threads": 1,
}
"""Settings that reduce a CIFAR run to minutes on two cores.

Without augmentation, twelve epochs make a network overconfident, as hundreds do with it.
"""
TWO_CORES_REDUCED = (
    "ResNet-20 on 10,000 of the 50,000 training images: 8,000 to learn from, 500 for validation, 1,500 for calibration",
    "12 epochs with a cosine schedule and without augmentation, bfloat16",
    "the test part is complete",
)
"""The same in words, for a report."""
