"""The optimiser of a recipe."""

from __future__ import annotations

import torch
from torch import nn

from training.recipe import Recipe


def make_optimiser(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return PyTorch's SGD, Adam or (with weight decay) AdamW for all trainable parameters.

    Args:
        module: The module, on its training device; on a GPU, one kernel updates all parameters.
        recipe: The optimiser and its settings. The loop sets the learning rate at each step.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    fused = any(parameter.is_cuda for parameter in parameters) or None
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
