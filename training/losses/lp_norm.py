"""Cross-entropy with a penalty on the norm of the logits."""

from __future__ import annotations

import torch
from torch import Tensor

from training.losses.cross_entropy import cross_entropy
from training.losses.targets import precise, require_range


def lp_norm(logits: Tensor, labels: Tensor, *, alpha: float = 0.01, p: float = 1.0) -> Tensor:
    """Cross-entropy plus the L_p norm of the logits: −log f_y + α (Σ_k |g_k|^p)^(1/p).

    Args:
        logits: Pre-softmax scores g, floating (N, K).
        labels: Column of the true class, int64 (N,), or weights of the classes, floating (N, K).
        alpha: Weight of the norm, in [0, ∞); 0 gives cross-entropy.
        p: Order of the norm, in [1, ∞).

    Returns:
        Losses (N,), in [0, ∞).

    References:
        Joo & Chung 2020, Revisiting explicit regularization in neural networks for well-calibrated predictive
        uncertainty.
        Wang, Feng & Zhang 2021, Rethinking calibration of deep neural networks, section 3.

    Example:
        >>> import torch
        >>> lp_norm(torch.tensor([[3.0, -3.0]]), torch.tensor([0]), alpha=0.1)  # 0.0025 + 0.1 · 6
        tensor([0.6025])
    """
    require_range("lp_norm", "alpha", alpha, 0.0)
    require_range("lp_norm", "p", p, 1.0)
    g = precise(logits)
    # The norm of g divided by its largest entry cannot overflow, and its gradient is that of the norm of g.
    largest = g.detach().abs().amax(dim=1, keepdim=True)
    largest = torch.where(largest > 0, largest, 1.0)
    norm: Tensor = torch.linalg.vector_norm(g / largest, ord=p, dim=1) * largest.squeeze(1)
    return cross_entropy(g, labels) + alpha * norm
