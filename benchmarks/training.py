"""Compare the images per second of the training loop with a plain loop over a DataLoader.

Both train ResNet-20 on images of 32 × 32 × 3 with random crops and mirror images, SGD with momentum, batches of 128.
The plain loop is that of a first script: a DataLoader over float32 images, flipped and cropped one by one, without
autocast. All variants take turns in one run, and the fastest epoch of each counts. The slowest first epoch is also
shown: it includes compilation, which is shorter if PyTorch has cached an earlier run. The pixels are random, because
speed does not depend on them.

    python -m benchmarks.training
    python -m benchmarks.training --compile
    python -m benchmarks.training --model resnet18 --device cuda --images 50000 --batch-size 512
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from training.augment import Augmentation
from training.determinism import deterministic
from training.epochs import Epoch
from training.inputs import ImageShape
from training.loop import Rows, device_of, train
from training.losses import LOSSES, Criterion
from training.models import MODELS, assemble
from training.recipe import Recipe

CLASSES, SIDE, BORDER = 10, 32, 4
PLAIN, TURNS = "plain loop: DataLoader, float32", 2


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="resnet20", choices=sorted(MODELS))
    options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options.add_argument("--images", type=int, default=5_120)
    options.add_argument("--batch-size", type=int, default=128)
    options.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options.add_argument("--epochs", type=int, default=3, help="epochs per variant and turn")
    options.add_argument("--compile", action="store_true", help="add a compiled variant; requires a C++ compiler")
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    rng = np.random.default_rng(0)
    rows = Rows(
        rng.integers(0, 256, (arguments.images, SIDE, SIDE, 3), np.uint8),
        rng.integers(0, CLASSES, arguments.images).astype(np.int64),
    )
    recipe = Recipe(
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        optimiser="sgd",
        learning_rate=0.01,
        weight_decay=1e-4,
        crop=BORDER,
        flip=True,
        device=arguments.device,
        threads=arguments.threads,
    )
    found = take_turns(variants(rows, recipe, arguments.model, compiled=arguments.compile))
    print(f"{arguments.model}, {arguments.images} images per epoch, batches of {arguments.batch_size}\n")
    print("| | images/s | ratio to the plain loop | first epoch, s |\n|---|---|---|---|")
    for name, (first, fastest) in found.items():
        print(f"| {name} | {arguments.images / fastest:,.0f} | {found[PLAIN][1] / fastest:.2f}× | {first:.1f} |")
    pipeline = input_pipeline(rows, recipe) / min(fastest for _, fastest in found.values())
    print(f"\nChoosing, cropping and mirroring the images: {pipeline:.1%} of the fastest epoch.")
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{os.cpu_count()} cores"
    print(f"{platform.machine()}, {where}, {arguments.threads} threads; PyTorch {torch.__version__}")


def variants(rows: Rows, recipe: Recipe, model: str, *, compiled: bool) -> dict[str, Callable[[], list[float]]]:
    """Return the variants by name; each returns the seconds of its epochs."""
    half = replace(recipe, precision="bfloat16", channels_last=True)
    recipes = {
        "ours, float32": recipe,
        "ours, float32, channels last": replace(recipe, channels_last=True),
        "ours, bfloat16, channels last": half,
    }
    if compiled:
        recipes["ours, bfloat16, channels last, compiled"] = replace(half, compile=True)
    return {PLAIN: partial(plain, rows, recipe, model)} | {
        name: partial(ours, rows, asked, model) for name, asked in recipes.items()
    }


def take_turns(runs: dict[str, Callable[[], list[float]]]) -> dict[str, tuple[float, float]]:
    """Return the seconds of each variant's slowest first epoch and fastest epoch, over two turns."""
    found: dict[str, tuple[float, float]] = {}
    for _ in range(TURNS):
        for name, run in runs.items():
            epochs = run()
            first, fastest = found.get(name, (0.0, float("inf")))
            found[name] = max(first, epochs[0]), min(fastest, *epochs)
    return found


def ours(rows: Rows, recipe: Recipe, model: str, *, reproducible: bool = True) -> list[float]:
    """Return the seconds of each epoch of our loop, with deterministic kernels or with the fastest."""
    with deterministic(recipe.seed, recipe.threads, strict=reproducible):
        module = assemble(MODELS[model], ImageShape(SIDE, SIDE, scale=(128.0,) * 3), CLASSES)
        epochs: list[Epoch] = []
        train(module, Criterion(LOSSES["cross_entropy"], {}, len(rows)), rows, recipe, on_epoch=epochs.append)
    return [epoch.seconds for epoch in epochs]


class Images(Dataset[tuple[Tensor, int]]):
    """Images of a first script: float32, augmented one by one."""

    def __init__(self, rows: Rows) -> None:
        self.inputs = torch.from_numpy(rows.inputs).permute(0, 3, 1, 2).to(torch.float32) / 128
        self.labels = rows.labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        image = functional.pad(self.inputs[row], (BORDER,) * 4)
        top, left = (int(place) for place in torch.randint(2 * BORDER + 1, (2,)))
        image = image[:, top : top + SIDE, left : left + SIDE]
        return (image.flip(2) if torch.rand(()) < 0.5 else image), self.labels[row]


def plain(rows: Rows, recipe: Recipe, model: str) -> list[float]:
    """Return the seconds of each epoch of a plain loop."""
    device = device_of(recipe)
    module = assemble(MODELS[model], ImageShape(SIDE, SIDE, scale=(128.0,) * 3), CLASSES)[1].to(device)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(Images(rows), recipe.batch_size, shuffle=True)
    seconds = []
    for _ in range(recipe.epochs):
        began = time.perf_counter()
        for images, labels in loader:
            loss = nn.functional.cross_entropy(module(images.to(device)), labels.to(device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        loss.item()
        seconds.append(time.perf_counter() - began)
    return seconds


def input_pipeline(rows: Rows, recipe: Recipe) -> float:
    """Return the seconds that an epoch spends on its inputs, without the network."""
    inputs = torch.from_numpy(rows.inputs).to(device_of(recipe))
    augment = Augmentation(recipe, torch.Generator().manual_seed(0))
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for batch in torch.randperm(len(inputs)).split(recipe.batch_size):
            augment(inputs[batch.to(inputs.device)])
        if inputs.is_cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return best


if __name__ == "__main__":
    main()
