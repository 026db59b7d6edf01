"""What losses share: logarithms of probabilities, labels that are classes or weights, ranges of coefficients."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from training.errors import ConfigurationError


def precise(logits: Tensor) -> Tensor:
    """The logits in float32, or in float64 if they are."""
    return logits if logits.dtype == torch.float64 else logits.float()


def log_softmax(logits: Tensor) -> Tensor:
    """Logarithms (N, K) of the softmax of logits (N, K), in float32 or float64."""
    return functional.log_softmax(precise(logits), dim=1)


def expected(values: Tensor, labels: Tensor) -> Tensor:
    """The value at the label, or the mean over the label's classes where each has a weight.

    Args:
        values: One value for each class, (N, K).
        labels: Classes int64 (N,), or weights floating (N, K).

    Returns:
        Values (N,).
    """
    if labels.ndim == 1:
        return -functional.nll_loss(values, labels, reduction="none")
    return (labels.to(values.dtype) * values).sum(dim=1)


def require_classes(loss: str, labels: Tensor) -> None:
    """Refuse labels (N, K) where a prediction must be either right or wrong."""
    if labels.ndim != 1:
        raise ConfigurationError(
            f"{loss} got labels of shape {tuple(labels.shape)}, expected one class for each example, (N,): "
            "it asks whether a prediction is right, and mixed labels do not say"
        )


def require_range(loss: str, coefficient: str, value: float, least: float, below: float = math.inf) -> None:
    """Refuse a coefficient outside of least ≤ value < below."""
    if not least <= value < below:
        upper = "" if math.isinf(below) else f" and less than {below:g}"
        raise ConfigurationError(f"{loss}: {coefficient} is {value}, expected a number of at least {least:g}{upper}")
