"""Train ResNet-18 on images of CIFAR's shape, through the training loop of `candor-train`."""

from __future__ import annotations

import os
import shutil
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.bench import Bench, LeftOutError
from benchmarks.training import BORDER, CLASSES, SIDE, ours
from training.loop import Rows
from training.recipe import Recipe

MODEL = "resnet18"
COMPILED = "bfloat16, channels last, compiled"
FREE = f"{COMPILED}, not deterministic"
"""What the deterministic kernels cost, with which `candor-train` always trains."""
GOAL_S = 3.0  # of an epoch of 50,000 images, compiled


def run(bench: Bench) -> dict[str, Any]:
    """Return the seconds of an epoch and images per second of each variant.

    The pixels are random, because speed does not depend on them. Images are cropped and mirrored as in training.
    """
    host, sizes = bench.host, bench.host.sizes
    if host.gpu is not None and torch.version.cuda is None:
        raise LeftOutError(f"this PyTorch {torch.__version__} is built without CUDA")
    rng = np.random.default_rng(0)
    rows = Rows(
        rng.integers(0, 256, (sizes.images, SIDE, SIDE, 3), np.uint8),
        rng.integers(0, CLASSES, sizes.images).astype(np.int64),
    )
    recipe = Recipe(
        epochs=sizes.epochs,
        batch_size=sizes.batch_size,
        optimiser="sgd",
        learning_rate=0.01,
        weight_decay=1e-4,
        crop=BORDER,
        flip=True,
        device="cpu" if host.gpu is None else "cuda",
        threads=os.cpu_count() or 1,
    )
    half = replace(recipe, precision="bfloat16", channels_last=True)
    recipes = {
        "float32": recipe,
        "bfloat16, channels last": half,
        COMPILED: replace(half, compile=True),
        FREE: replace(half, compile=True),
    }
    variants, left_out = {}, {}
    for name, asked in recipes.items():
        # On a GPU, too: Triton compiles what starts its kernels.
        if asked.compile and shutil.which("g++") is None:
            left_out[name] = "no C++ compiler (g++) was found"
            continue
        bench.say(f"{MODEL}, {name}")
        first, *others = ours(rows, asked, MODEL, reproducible=name != FREE)
        epoch_s = statistics.median(others)
        variants[name] = {"first_epoch_s": first, "epoch_s": epoch_s, "images_per_s": sizes.images / epoch_s}
    return {"images": sizes.images, "batch_size": sizes.batch_size, "variants": variants, "left_out": left_out}
