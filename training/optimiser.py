"""The optimiser of a recipe."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from training.recipe import Recipe


def make_optimiser(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return PyTorch's SGD, Adam or (with weight decay) AdamW for all trainable parameters.

    Args:
        module: The module, on its training device; on a GPU, one kernel updates all parameters.
        recipe: The optimiser and its settings. The loop sets the learning rate at each step, times the
            `scale` of each group of parameters.
    """
    parameters: Any = [parameter for parameter in module.parameters() if parameter.requires_grad]
    fused = any(parameter.is_cuda for parameter in parameters) or None
    if recipe.layer_decay < 1:
        layers = layers_of(module)
        parameters = [
            {"params": layer, "scale": recipe.layer_decay ** (len(layers) - 1 - place)}
            for place, layer in enumerate(layers)
        ]
    if recipe.optimiser == "adam":
        kind = torch.optim.AdamW if recipe.weight_decay else torch.optim.Adam
        return kind(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=fused)
    return torch.optim.SGD(
        parameters,
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
        fused=fused,
    )


def layers_of(module: nn.Module) -> list[list[nn.Parameter]]:
    """Return the trainable parameters by layer, from the first to the head.

    A layer is a numbered block (`blocks.3`, `layer1.0`, `encoder.layer.5`), or what has no number, such as a head.

    Example:
        >>> network = nn.Module()
        >>> network.blocks = nn.ModuleList(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)) for _ in range(3))
        >>> network.head = nn.Linear(1, 2)
        >>> [len(layer) for layer in layers_of(nn.Sequential(nn.Identity(), network))]
        [4, 4, 4, 2]
    """
    layers: dict[str, list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        inner = name.partition(".")[2] or name  # within preprocessing and network
        block = re.match(r".*?\.\d+(?=\.)", inner)
        if parameter.requires_grad:
            layers.setdefault(block[0] if block else inner.rpartition(".")[0], []).append(parameter)
    return list(layers.values())
