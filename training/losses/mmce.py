"""Cross-entropy with a kernel estimate of the batch's calibration error."""

from __future__ import annotations

import torch
from torch import Tensor

from training.losses.targets import expected, log_softmax, require_classes, require_range

WIDTH = 0.4  # of the Laplacian kernel, the paper's


def mmce(logits: Tensor, labels: Tensor, *, lam: float = 2.0) -> Tensor:
    """Cross-entropy plus the maximum mean calibration error of the batch: −log f_y + λ MMCE.

    MMCE² = Σ_ij (c_i − r_i)(c_j − r_j) k(r_i, r_j) / N², with r_i the largest probability of row i, c_i whether it is
    the true class's, and k(r, r') = exp(−|r − r'| / 0.4). MMCE is one number per batch, added to every row, so that the
    mean over the batch is mean cross-entropy + λ MMCE. A row's loss therefore depends on its batch.

    Args:
        logits: Pre-softmax scores, floating (N, K).
        labels: Column of the true class, int64 (N,).
        lam: Weight λ of the calibration error, in [0, ∞); 0 gives cross-entropy.

    Returns:
        Losses (N,), in [0, ∞).

    References:
        Kumar, Sarawagi & Jain 2018, Trainable calibration measures for neural networks from kernel mean embeddings,
        sections 3 and 4.

    Example:
        >>> import torch
        >>> mmce(torch.zeros(1, 2), torch.tensor([0]), lam=1.0)  # log 2 + |1 − 1/2|
        tensor([1.1931])
    """
    require_range("mmce", "lam", lam, 0.0)
    log_f, confidence, right = _read("mmce", logits, labels)
    return -expected(log_f, labels) + lam * _norm((right - confidence) / right.numel(), confidence)


def weighted_mmce(logits: Tensor, labels: Tensor, *, lam: float = 2.0) -> Tensor:
    """As `mmce`, with equal total weight for the right and the wrong rows of a batch.

    Each gap c_i − r_i is divided by the number of rows of its kind instead of N. A network that fits its training rows
    has few wrong ones, whose overconfidence would vanish in the mean.

    Args:
        logits: Pre-softmax scores, floating (N, K).
        labels: Column of the true class, int64 (N,).
        lam: Weight λ of the calibration error, in [0, ∞); 0 gives cross-entropy.

    Returns:
        Losses (N,), in [0, ∞).

    References:
        Kumar, Sarawagi & Jain 2018, section 4.2 (MMCE_w).

    Example:
        >>> import torch
        >>> weighted_mmce(torch.zeros(2, 2), torch.tensor([0, 0]), lam=1.0)  # as one row: log 2 + |1 − 1/2|
        tensor([1.1931, 1.1931])
    """
    require_range("weighted_mmce", "lam", lam, 0.0)
    log_f, confidence, right = _read("weighted_mmce", logits, labels)
    of_its_kind = torch.where(right > 0, right.sum(), (1.0 - right).sum())
    return -expected(log_f, labels) + lam * _norm((right - confidence) / of_its_kind, confidence)


def _read(loss: str, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities (N, K), the largest probability (N,), and whether it is the true class's, 0.0 or 1.0 (N,)."""
    require_classes(loss, labels)
    log_f = log_softmax(logits)
    largest, predicted = log_f.max(dim=1)
    return log_f, largest.exp(), (predicted == labels).to(log_f.dtype)


def _norm(gaps: Tensor, confidence: Tensor) -> Tensor:
    """Norm of gaps (N,) under the Laplacian kernel of confidences (N,)."""
    kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / WIDTH)
    with torch.autocast(gaps.device.type, enabled=False):  # it would multiply matrices in half precision
        square = gaps @ kernel @ gaps
    # The gradient is zero where rounding leaves nothing to take the root of.
    return square.clamp_min(torch.finfo(square.dtype).tiny).sqrt()
