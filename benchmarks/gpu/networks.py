"""The networks that are served: bundles of LeNet-5, ResNet-18 and ResNet-50 for images of CIFAR's shape.

They are not trained, since neither speed nor agreement depends on what they know. But their activations have the size
of a trained network's: batch normalisation is measured on the images, and logits are scaled to a standard deviation
of 3, so that probabilities lie between 0 and 1 and a difference between devices shows.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from benchmarks.gpu.bench import Bench
from benchmarks.serving.model import CLASSES, SHAPE, Prepared, bundled
from training.export import logits_of, to_onnx
from training.inputs import ImageShape
from training.models import MODELS, assemble

NETWORKS = {"lenet5": "LeNet-5", "resnet18": "ResNet-18", "resnet50": "ResNet-50"}
_MEASURED = 256  # images that batch normalisation and logits are measured on
_BATCH = 64
_DEVIATION = 3.0


def run(bench: Bench) -> dict[str, Any]:
    """Write a bundle of each network, with images and what the CPU answers for them."""
    return {"parameters": {name: write(bench, name) for name in NETWORKS}}


def write(bench: Bench, name: str) -> int:
    """Write one network and return the number of its parameters."""
    bench.say(f"{NETWORKS[name]}: to ONNX")
    folder = bench.folder / "networks" / name
    shutil.rmtree(folder, ignore_errors=True)
    rng = np.random.default_rng(0)
    module = network(name, images(rng, _MEASURED))
    inputs = images(rng, bench.host.sizes.batches[-1])
    prepared = bundled(name, to_onnx(module, inputs[:2]), inputs, folder)
    np.savez(folder / "answers.npz", inputs=inputs, logits=prepared.logits, probabilities=prepared.probabilities)
    return sum(parameter.numel() for parameter in module.parameters())


def load(bench: Bench, name: str) -> Prepared:
    """Return a network that was written.

    Raises:
        RuntimeError: It has not been written yet.
    """
    folder = bench.folder / "networks" / name
    if not (folder / "answers.npz").exists():
        raise RuntimeError(f"{folder} has no bundle. Run the part `networks` first.")
    with np.load(folder / "answers.npz") as answers:
        arrays = {key: answers[key] for key in answers.files}
    return Prepared(folder / f"{name}.onnx", folder / "bundles", folder / "policies", **arrays)


def images(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint8]:
    """Draw images uint8 (count, 32, 32, 3) of coarse and fine noise: of fine noise alone, all would be alike."""
    coarse = rng.integers(0, 256, (count, 4, 4, 3)).repeat(8, axis=1).repeat(8, axis=2)
    fine = rng.integers(0, 256, (count, *SHAPE))
    return ((3 * coarse + fine) // 4).astype(np.uint8)


def network(name: str, measured: npt.NDArray[np.uint8]) -> nn.Module:
    """Return a module in evaluation mode, with logits of mean 0 and standard deviation 3 on these images."""
    torch.manual_seed(0)
    module = assemble(MODELS[name], ImageShape(*SHAPE[:2], scale=(128.0,) * SHAPE[2]), CLASSES)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # the mean over all batches
    with torch.no_grad():
        for start in range(0, len(measured), _BATCH):
            module.train()(torch.from_numpy(measured[start : start + _BATCH]))
        logits = torch.from_numpy(logits_of(module.eval(), measured))
        head = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
        scale = _DEVIATION / logits.std(dim=0)
        head.weight *= scale[:, None]
        head.bias.copy_((head.bias - logits.mean(dim=0)) * scale)
    return module
