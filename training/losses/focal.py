"""Focal loss, with one exponent for all examples or one per example."""

from __future__ import annotations

import torch
from torch import Tensor

from training.errors import ConfigurationError
from training.losses.targets import expected, log_softmax, require_range


def focal(logits: Tensor, labels: Tensor, *, gamma: float = 3.0, alpha: float = 0.0) -> Tensor:
    """Cross-entropy that counts less the surer the network is of the true class: −α_y (1 − f_y)^γ log f_y.

    Args:
        logits: Pre-softmax scores, floating (N, K).
        labels: Column of the true class, int64 (N,), or weights of the classes, floating (N, K).
        gamma: The exponent, in [0, ∞); 0 gives cross-entropy.
        alpha: Weight α_1 of the second of two classes, in (0, 1); the first has 1 − α. 0 weights no class. For more
            classes there are class weights (`TrainConfig.class_weights`).

    Returns:
        Losses (N,), in [0, ∞).

    References:
        Lin et al. 2017, Focal loss for dense object detection, section 3.
        Mukhoti et al. 2020, Calibrating deep neural networks using focal loss, section 4.

    Example:
        >>> import torch
        >>> focal(torch.zeros(1, 2), torch.tensor([0]), gamma=2.0)  # log 2 / 4
        tensor([0.1733])
    """
    require_range("focal", "gamma", gamma, 0.0)
    require_range("focal", "alpha", alpha, 0.0, 1.0)
    log_f = log_softmax(logits)
    losses = -(_others(log_f) ** gamma) * log_f
    if alpha:
        if logits.shape[1] != 2:
            raise ConfigurationError(f"focal: alpha weights two classes, not {logits.shape[1]}; use --class-weight")
        losses = losses * losses.new_tensor([1.0 - alpha, alpha])
    return expected(losses, labels)


def sample_dependent_focal(
    logits: Tensor, labels: Tensor, *, gamma_below: float = 5.0, gamma_above: float = 3.0, threshold: float = 0.2
) -> Tensor:
    """Focal loss with a larger exponent for true classes of low probability: −(1 − f_y)^γ(f_y) log f_y.

    The defaults are FLSD-53. The loss jumps at the threshold; its gradient is that of focal loss on either side.

    Args:
        logits: Pre-softmax scores, floating (N, K).
        labels: Column of the true class, int64 (N,), or weights of the classes, floating (N, K).
        gamma_below: The exponent where f_y < threshold, in [0, ∞).
        gamma_above: The exponent elsewhere, in [0, ∞); both 0 give cross-entropy.
        threshold: A probability, in [0, 1].

    Returns:
        Losses (N,), in [0, ∞).

    References:
        Mukhoti et al. 2020, Calibrating deep neural networks using focal loss, section 5.

    Example:
        >>> import torch
        >>> sample_dependent_focal(torch.zeros(1, 2), torch.tensor([0]))  # log 2 / 8
        tensor([0.0866])
    """
    require_range("sample_dependent_focal", "gamma_below", gamma_below, 0.0)
    require_range("sample_dependent_focal", "gamma_above", gamma_above, 0.0)
    require_range("sample_dependent_focal", "threshold", threshold, 0.0, 1.0 + 1e-9)
    log_f = log_softmax(logits)
    others = _others(log_f)
    weights = torch.where(log_f.detach().exp() < threshold, others**gamma_below, others**gamma_above)
    return -expected(weights * log_f, labels)


def _others(log_f: Tensor) -> Tensor:
    """1 − f, accurate near f = 1, and there above zero: a power below 1 has no gradient at zero."""
    return (-torch.expm1(log_f)).clamp_min(torch.finfo(log_f.dtype).tiny)
