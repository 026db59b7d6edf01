"""Cross-entropy with a reward for entropy."""

from __future__ import annotations

from torch import Tensor

from training.losses.targets import expected, log_softmax, require_range


def entropy_regularisation(logits: Tensor, labels: Tensor, *, beta: float = 0.1) -> Tensor:
    """Cross-entropy less the entropy of the prediction: −log f_y − β H(f), with H(f) = −Σ_k f_k log f_k.

    Args:
        logits: Pre-softmax scores, floating (N, K).
        labels: Column of the true class, int64 (N,), or weights of the classes, floating (N, K).
        beta: Weight of the entropy, in [0, ∞); 0 gives cross-entropy.

    Returns:
        Losses (N,), in [−β log K, ∞).

    References:
        Pereyra et al. 2017, Regularizing neural networks by penalizing confident output distributions, section 3.

    Example:
        >>> import torch
        >>> entropy_regularisation(torch.zeros(1, 4), torch.tensor([2]), beta=0.5)  # (1 − 0.5) log 4
        tensor([0.6931])
    """
    require_range("entropy_regularisation", "beta", beta, 0.0)
    log_f = log_softmax(logits)
    entropy = -(log_f.exp() * log_f).sum(dim=1)
    return -expected(log_f, labels) - beta * entropy
