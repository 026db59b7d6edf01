"""On a GPU every network takes a step with deterministic kernels: a layer without one would raise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.determinism import deterministic
from training.inputs import CategoryColumn, ImageShape, InputShape, NumberColumn, TableShape, TokenShape
from training.loop import Rows, train
from training.losses import LOSSES, Criterion
from training.models import MODELS, ImageNetwork, TokenNetwork, assemble
from training.recipe import Recipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.version.cuda is None, reason="this PyTorch is built without CUDA"),
]
COUNT = 4


def inputs_of(name: str) -> tuple[InputShape, np.ndarray]:
    rng = np.random.default_rng(0)
    if issubclass(MODELS[name], ImageNetwork):
        channels = 1 if name == "lenet5_original" else 3
        side = 224 if name == "imagenet_resnet50" else 32
        shape = ImageShape(side, side, scale=(128.0,) * channels)
        return shape, rng.integers(0, 256, (COUNT, side, side, channels)).astype(np.uint8)
    if issubclass(MODELS[name], TokenNetwork):
        return TokenShape(vocabulary=50, length=20), rng.integers(0, 50, (COUNT, 20)).astype(np.int32)
    shape = TableShape((NumberColumn(knots=(-1.0, 1.0)), CategoryColumn(3)))
    return shape, np.stack([rng.normal(size=COUNT), rng.integers(0, 4, COUNT)], axis=1).astype(np.float32)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_network_takes_a_step(name: str) -> None:
    if name == "imagenet_resnet50":
        pytest.importorskip("torchvision")
    shape, inputs = inputs_of(name)
    recipe = Recipe(epochs=1, batch_size=COUNT, device="cuda")
    with deterministic(0, 1):
        module = assemble(MODELS[name], shape, 2)
        rows = Rows(inputs, np.arange(COUNT) % 2)
        outcome = train(module, Criterion(LOSSES["cross_entropy"], {}, COUNT), rows, recipe)
    assert np.isfinite(outcome.epochs[0].loss)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_every_loss_takes_a_step(loss: str) -> None:
    shape, inputs = inputs_of("lenet5")
    recipe = Recipe(epochs=1, batch_size=COUNT, device="cuda")
    with deterministic(0, 1):
        module = assemble(MODELS["lenet5"], shape, 2)
        outcome = train(module, Criterion(LOSSES[loss], {}, COUNT), Rows(inputs, np.arange(COUNT) % 2), recipe)
    assert np.isfinite(outcome.epochs[0].loss)
