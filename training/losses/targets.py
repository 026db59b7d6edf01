"""Shared by losses: logarithms of probabilities, labels as classes or weights, ranges of coefficients."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from training.errors import ConfigurationError


def precise(logits: Tensor) -> Tensor:
    """Return the logits in float32, or in float64 if they already are."""
    return logits if logits.dtype == torch.float64 else logits.float()


def log_softmax(logits: Tensor) -> Tensor:
    """Return the logarithms (N, K) of the softmax of logits (N, K), in float32 or float64."""
    return functional.log_softmax(precise(logits), dim=1)


def expected(values: Tensor, labels: Tensor) -> Tensor:
    """Return values (N, K) at labels int64 (N,), or their means under weights (N, K) of the classes: (N,)."""
    if labels.ndim == 1:
        return -functional.nll_loss(values, labels, reduction="none")
    return (labels.to(values.dtype) * values).sum(dim=1)


def require_classes(loss: str, labels: Tensor) -> None:
    """Raise ConfigurationError for labels (N, K) if a prediction must be either right or wrong."""
    if labels.ndim != 1:
        raise ConfigurationError(
            f"{loss} got labels of shape {tuple(labels.shape)}, expected one class for each example, (N,): "
            "with mixed labels a prediction is neither right nor wrong"
        )


def require_range(loss: str, coefficient: str, value: float, least: float, below: float = math.inf) -> None:
    """Refuse a coefficient outside of least ≤ value < below."""
    if not least <= value < below:
        upper = "" if math.isinf(below) else f" and less than {below:g}"
        raise ConfigurationError(f"{loss}: {coefficient} is {value}, expected a number of at least {least:g}{upper}")
