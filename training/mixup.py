"""Mixup and CutMix: training on mixtures of examples."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.errors import ConfigurationError
from training.recipe import Recipe


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


def cutmix(
    inputs: Tensor, labels: Tensor, classes: int, *, alpha: float = 1.0, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Paste a box of another image into each image of a batch; the classes are weighed by their area.

    The batch is paired with a random permutation of itself. One box for the whole batch has its centre anywhere and
    sides √(1 − λ) of the image's with λ ~ Beta(α, α); what lies outside the image is cut off.

    Args:
        inputs: Preprocessed images, floating (N, C, H, W).
        labels: Classes, int64 (N,).
        classes: Number of classes, K.
        alpha: Both parameters of the Beta distribution, positive.
        generator: Source of randomness; the result is the same on every device.

    Returns:
        Mixed images (N, C, H, W) in the inputs' type, and weights of the classes, float32 (N, K).

    Raises:
        ConfigurationError: The inputs are not images.

    References:
        Yun et al. 2019, CutMix: regularization strategy to train strong classifiers with localizable features,
        section 3.1.

    Example:
        >>> images, labels = torch.arange(2.0)[:, None, None, None].expand(2, 1, 4, 4), torch.tensor([0, 1])
        >>> mixed, weights = cutmix(images, labels, 2, generator=np.random.default_rng(2))
        >>> bool((mixed.mean(dim=(1, 2, 3)) == weights[:, 1]).all())
        True
    """
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or inputs.ndim != 4:
        found = f"{inputs.dtype} {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else "several tensors"
        raise ConfigurationError(f"cutmix: inputs are {found}, expected preprocessed images, floating (N, C, H, W)")
    height, width = inputs.shape[2:]
    side = math.sqrt(1 - float(generator.beta(alpha, alpha)))
    top, bottom = _span(height, side, generator)
    left, right = _span(width, side, generator)
    partner = torch.from_numpy(generator.permutation(len(inputs))).to(inputs.device)
    mixed = inputs.clone()
    mixed[:, :, top:bottom, left:right] = inputs[partner, :, top:bottom, left:right]
    weights = functional.one_hot(labels, classes).to(torch.float32)
    kept = 1 - (bottom - top) * (right - left) / (height * width)
    return mixed, torch.lerp(weights[partner], weights, kept)


def _span(size: int, share: float, generator: np.random.Generator) -> tuple[int, int]:
    """Return where an interval of `share` of `size` pixels around a random pixel begins and ends."""
    half, centre = round(size * share) // 2, int(generator.integers(size))
    return max(centre - half, 0), min(centre + half, size)


class Mixing(nn.Module):
    """A network trained on mixtures of its examples, mixed after the preprocessing.

    Args:
        preprocessing: From stored inputs to the network's inputs, floating (N, …).
        network: From those to logits (N, K).
        classes: Number of classes, K.
        recipe: Selects `mixup` and `cutmix`; with both, each batch takes one of them at random.
    """

    def __init__(self, preprocessing: nn.Module, network: nn.Module, classes: int, recipe: Recipe) -> None:
        super().__init__()
        self.preprocessing, self.network = preprocessing, network
        self._classes, self._mixup, self._cutmix = classes, recipe.mixup, recipe.cutmix

    def forward(self, inputs: Tensor, labels: Tensor, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Map stored inputs (N, …) and labels int64 (N,) to logits and the weights of the classes, both (N, K)."""
        pastes = self._cutmix > 0 and (not self._mixup or generator.random() < 0.5)
        mix, alpha = (cutmix, self._cutmix) if pastes else (mixup, self._mixup)
        mixed, weights = mix(self.preprocessing(inputs), labels, self._classes, alpha=alpha, generator=generator)
        return self.network(mixed), weights
