"""The optimiser that a recipe asks for."""

from __future__ import annotations

import torch
from torch import nn

from training.recipe import Recipe


def make_optimiser(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """PyTorch's SGD, Adam or (with weight decay) AdamW, over all parameters that learn.

    Args:
        module: On the device that it is trained on; on a GPU, all parameters are updated by one kernel.
        recipe: Says which, and its settings. The loop sets the learning rate anew at each step.
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
