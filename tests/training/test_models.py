"""Architectures."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from training.models import MODELS, LeNet5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("channels", "classes"), [(1, 10), (3, 2)])
def test_every_model_maps_images_to_logits_and_learns(name: str, channels: int, classes: int) -> None:
    torch.manual_seed(0)
    model = MODELS[name](channels, classes, dropout=0.1)
    logits = model(torch.randn(4, channels, model.size, model.size))
    assert logits.shape == (4, classes)
    logits.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_lenet5_has_the_parameters_of_the_paper_with_full_connections() -> None:
    count = sum(parameter.numel() for parameter in LeNet5(1, 10).parameters())
    assert count == (6 * 26) + (16 * 151) + (120 * 401) + (84 * 121) + (10 * 85)


def test_lenet5_starts_as_kaiming_says() -> None:
    torch.manual_seed(0)
    layers = [layer for layer in LeNet5(1, 10).modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    fans = [6 * 25, 16 * 25, 120 * 25, 120, 84]
    for layer, fan in zip(layers, fans, strict=True):
        assert layer.weight.detach().std().item() == pytest.approx(math.sqrt(2 / fan), rel=0.2)
        assert layer.bias is not None
        assert not layer.bias.any()


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    model, images = LeNet5(1, 10, dropout=0.5), torch.randn(2, 1, 32, 32)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))
