"""Label smoothing."""

from __future__ import annotations

from torch import Tensor

from training.losses.targets import expected, log_softmax, require_range


def label_smoothing(logits: Tensor, labels: Tensor, *, epsilon: float = 0.05) -> Tensor:
    """Cross-entropy with a label that keeps 1 − ε for the true class and spreads ε evenly over all K classes.

    −(1 − ε) log f_y − (ε / K) Σ_k log f_k

    Args:
        logits: Pre-softmax scores, floating (N, K).
        labels: Column of the true class, int64 (N,), or weights of the classes, floating (N, K).
        epsilon: Share that is spread, in [0, 1); 0 gives cross-entropy.

    Returns:
        Losses (N,), in [0, ∞).

    References:
        Szegedy et al. 2016, Rethinking the Inception architecture for computer vision, section 7.
        Müller et al. 2019, When does label smoothing help?

    Example:
        >>> import torch
        >>> label_smoothing(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), epsilon=0.1)  # 0.1269 + 0.1 · 2 / 2
        tensor([0.2269])
    """
    require_range("label_smoothing", "epsilon", epsilon, 0.0, 1.0)
    log_f = log_softmax(logits)
    return -(1.0 - epsilon) * expected(log_f, labels) - epsilon * log_f.mean(dim=1)
