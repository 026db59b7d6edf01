"""ConfidNet: a second network that learns, from the first one's features, the probability it gives to the true class.

The first network classifies and stays unchanged. The second takes the input of its last linear layer and estimates the
probability of the true class: near 1 where the first is right and sure, near 0 where it is wrong. As a score it can
order rows better than the largest probability; it refines, it does not calibrate. In a second stage, `fine_tuned` also
trains a copy of the first network at a very small learning rate; the first one still classifies.

References:
    Corbière et al. 2019, Addressing failure prediction by learning model confidence, sections 2.2 and 2.3.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.determinism import deterministic
from training.errors import ConfigurationError
from training.export import logits_of
from training.recipe import Recipe

_SMALLEST_SCALE = 1e-6  # for features that hardly vary


class ConfidNet(nn.Module):
    """Five linear layers from features, standardised, to a confidence.

    Args:
        centre: Means of the features, float32 (D,).
        scale: Their standard deviations, float32 (D,), positive.
        hidden: Units of each hidden layer.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, centre: Tensor, scale: Tensor, hidden: int = 400) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        widths = [len(centre), *[hidden] * 4]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden, 1))

    def forward(self, features: Tensor) -> Tensor:
        """Map features float32 (N, D) to the logits of confidences (N,)."""
        scores: Tensor = self.layers((features - self.centre) / self.scale)[:, 0]
        return scores


def fit_confidnet(
    module: nn.Module, inputs: NDArray[np.generic], labels: NDArray[np.int64], recipe: Recipe
) -> ConfidNet:
    """Train a ConfidNet on a classifier's training rows, by the mean squared error to the true class probability.

    The recipe's `epochs`, `batch_size`, `learning_rate`, `weight_decay`, `seed` and `threads` apply; the optimiser is
    Adam.

    Args:
        module: The trained classifier, from stored inputs to logits; not changed.
        inputs: (N, …), its training rows.
        labels: int64 (N,).
        recipe: How to train.

    Returns:
        The confidence network, in evaluation mode.

    Raises:
        ConfigurationError: The classifier has no linear layer.
    """
    features, logits = features_and_logits(module, inputs)
    target = _true_probability(logits.numpy(), labels)
    with deterministic(recipe.seed, recipe.threads, strict=recipe.deterministic):
        # Large features would saturate the sigmoid, which then has no gradient: all rows would be equally sure.
        network = ConfidNet(features.mean(dim=0), features.std(dim=0, correction=0).clamp_min(_SMALLEST_SCALE))
        optimiser = torch.optim.AdamW(network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
        for _ in range(recipe.epochs):
            order = torch.randperm(len(target))
            for start in range(0, len(order), recipe.batch_size):
                batch = order[start : start + recipe.batch_size]
                _step(optimiser, network(features[batch]), target[batch])
    return network.eval()


def fine_tuned(
    network: ConfidNet, module: nn.Module, inputs: NDArray[np.generic], labels: NDArray[np.int64], recipe: Recipe
) -> tuple[ConfidNet, nn.Module]:
    """Train copies of a fitted ConfidNet and of its classifier together, the second stage.

    Dropout is off and batch normalisations keep their statistics, as when confidences are computed. The target stays
    the probability that the unchanged classifier gives to the true class.

    Args:
        network: From `fit_confidnet`; not changed.
        module: Its classifier; not changed.
        inputs: (N, …), its training rows.
        labels: int64 (N,).
        recipe: How to train; the same settings apply as to `fit_confidnet`.

    Returns:
        The copies: the confidence network, and the network whose features it reads, for `confidences`.
    """
    network, encoder = copy.deepcopy(network), copy.deepcopy(module).eval()
    target = _true_probability(logits_of(module.eval(), inputs), labels)
    with deterministic(recipe.seed, recipe.threads, strict=recipe.deterministic), _watched(encoder) as seen:
        parameters = [*encoder.parameters(), *network.parameters()]
        optimiser = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
        for _ in range(recipe.epochs):
            order = torch.randperm(len(target))
            for start in range(0, len(order), recipe.batch_size):
                batch = order[start : start + recipe.batch_size]
                seen.clear()
                encoder(torch.from_numpy(inputs[batch.numpy()]))
                _step(optimiser, network(seen[0]), target[batch])
    return network.eval(), encoder


def _step(optimiser: torch.optim.Optimizer, scores: Tensor, target: Tensor) -> None:
    error = (scores.sigmoid() - target).square().mean()
    optimiser.zero_grad()
    torch.autograd.backward(error)
    optimiser.step()


def _true_probability(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(logits).softmax(dim=1).gather(1, torch.from_numpy(labels)[:, None])[:, 0]


def confidences(network: ConfidNet, module: nn.Module, inputs: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return the confidence that the classifier is right about each row: (N,), in [0, 1]."""
    features, _ = features_and_logits(module, inputs)
    with torch.inference_mode():
        result: NDArray[np.float32] = network(features).sigmoid().numpy()
    return result


def features_and_logits(module: nn.Module, inputs: NDArray[np.generic]) -> tuple[Tensor, Tensor]:
    """Return the input of a classifier's last linear layer (N, D) and its logits (N, K), in evaluation mode.

    Raises:
        ConfigurationError: The classifier has no linear layer.
    """
    with _watched(module) as seen:
        logits = logits_of(module.eval(), inputs)
    # Features leave inference mode, in which nothing can be learned from a tensor.
    return torch.cat(seen).clone(), torch.from_numpy(logits)


@contextmanager
def _watched(module: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the inputs of a classifier's last linear layer; raises ConfigurationError if it has none."""
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ConfigurationError("the network has no linear layer; ConfidNet requires one, whose input it reads")
    seen: list[Tensor] = []
    hook = linear[-1].register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].flatten(1)))
    try:
        yield seen
    finally:
        hook.remove()
