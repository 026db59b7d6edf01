"""Mixup: training on points between examples."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.errors import ConfigurationError


def mixup(
    inputs: Tensor, labels: Tensor, classes: int, *, alpha: float = 0.2, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Mix each row of a batch with another one: λ x_i + (1 − λ) x_j and λ y_i + (1 − λ) y_j.

    The batch is paired with a random permutation of itself, with one λ ~ Beta(α, α) for the whole batch. The inputs are
    preprocessed ones: stored pixels, tokens and codes cannot represent mixed values.

    Args:
        inputs: Floating (N, …), such as preprocessed images.
        labels: Classes, int64 (N,).
        classes: Number of classes, K.
        alpha: Both parameters of the Beta distribution, in [0, ∞); 0 leaves the inputs unchanged.
        generator: Source of randomness; the result is the same on every device.

    Returns:
        Mixed inputs (N, …) in the inputs' type, and weights of the classes, float32 (N, K).

    Raises:
        ConfigurationError: α is out of its range, or the inputs cannot be mixed.

    References:
        Zhang et al. 2018, mixup: beyond empirical risk minimization, section 2.

    Example:
        >>> images, labels = torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])
        >>> mixed, weights = mixup(images, labels, 2, generator=np.random.default_rng(1))
        >>> bool((mixed == weights[:, 1:]).all())
        True
    """
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise ConfigurationError(f"mixup: alpha is {alpha}, expected a number of at least 0")
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        found = inputs.dtype if isinstance(inputs, Tensor) else "several tensors"
        raise ConfigurationError(
            f"mixup: inputs are {found}, expected a floating type: tokens and codes cannot be mixed"
        )
    share = float(generator.beta(alpha, alpha)) if alpha > 0 else 1.0
    partner = torch.from_numpy(generator.permutation(len(inputs))).to(inputs.device)
    weights = functional.one_hot(labels, classes).to(torch.float32)
    return torch.lerp(inputs[partner], inputs, share), torch.lerp(weights[partner], weights, share)


class Mixing(nn.Module):
    """A network trained on points between its examples, mixed after the preprocessing.

    Args:
        preprocessing: From stored inputs to the network's inputs, floating (N, …).
        network: From those to logits (N, K).
        classes: Number of classes, K.
        alpha: Both parameters of the Beta distribution.
    """

    def __init__(self, preprocessing: nn.Module, network: nn.Module, classes: int, alpha: float) -> None:
        super().__init__()
        self.preprocessing, self.network = preprocessing, network
        self.classes, self.alpha = classes, alpha

    def forward(self, inputs: Tensor, labels: Tensor, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Map stored inputs (N, …) and labels int64 (N,) to logits and the weights of the classes, both (N, K)."""
        mixed, weights = mixup(self.preprocessing(inputs), labels, self.classes, alpha=self.alpha, generator=generator)
        return self.network(mixed), weights
