"""Cross-entropy."""

from __future__ import annotations

from torch import Tensor

from training.losses.targets import expected, log_softmax


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The negative log-likelihood of the true class: −log f_y, with f the softmax of the logits.

    Args:
        logits: Pre-softmax scores, floating (N, K).
        labels: Column of the true class, int64 (N,), or weights of the classes, floating (N, K).

    Returns:
        Losses (N,), in [0, ∞).

    References:
        Guo et al. 2017, On calibration of modern neural networks, section 2.

    Example:
        >>> import torch
        >>> cross_entropy(torch.zeros(1, 4), torch.tensor([2]))  # log 4
        tensor([1.3863])
    """
    return -expected(log_softmax(logits), labels)
