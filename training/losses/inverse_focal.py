"""Inverse focal loss."""

from __future__ import annotations

from torch import Tensor

from training.losses.targets import expected, log_softmax, require_range


def inverse_focal(logits: Tensor, labels: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Cross-entropy that counts more the surer the network is of the true class: −(1 + f_y)^γ̄ log f_y.

    Args:
        logits: Pre-softmax scores, floating (N, K).
        labels: Column of the true class, int64 (N,), or weights of the classes, floating (N, K).
        gamma: The exponent γ̄, in [0, 100); 0 gives cross-entropy.

    Returns:
        Losses (N,), in [0, ∞).

    References:
        Wang, Feng & Zhang 2021, Rethinking calibration of deep neural networks, section 5.2.

    Example:
        >>> import torch
        >>> inverse_focal(torch.zeros(1, 2), torch.tensor([0]), gamma=2.0)  # 2.25 log 2
        tensor([1.5596])
    """
    require_range("inverse_focal", "gamma", gamma, 0.0, 100.0)  # 2**127 exceeds float32
    log_f = log_softmax(logits)
    return -expected((1.0 + log_f.exp()) ** gamma * log_f, labels)
