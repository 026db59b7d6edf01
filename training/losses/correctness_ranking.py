"""Cross-entropy with a penalty on confidences in the wrong order."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.losses.targets import expected, log_softmax, require_classes, require_range


def correctness_ranking(logits: Tensor, labels: Tensor, *, lam: float = 1.0, history: Tensor | None = None) -> Tensor:
    """Cross-entropy plus a ranking loss: rows that were right more often should have higher confidence.

    Each row i is paired with the next one of its batch, j, the last with the first:
    −log f_y + λ max(0, |c_i − c_j| − sign(c_i − c_j)(r_i − r_j)), with r the largest probability and c the share of
    earlier passes in which the row was right. A row's loss therefore depends on its neighbour.

    Args:
        logits: Pre-softmax scores, floating (N, K).
        labels: Column of the true class, int64 (N,).
        lam: Weight λ of the ranking loss, in [0, ∞); 0 gives cross-entropy.
        history: Share of earlier passes in which each row was right, floating (N,), in [0, 1], from
            `CorrectnessHistory`; None before the first pass, when this is cross-entropy.

    Returns:
        Losses (N,), in [0, ∞).

    References:
        Moon et al. 2020, Confidence-aware learning for deep neural networks, section 3.

    Example:
        >>> import torch
        >>> logits, labels = torch.zeros(2, 2), torch.tensor([0, 0])
        >>> correctness_ranking(logits, labels, history=torch.tensor([1.0, 0.5]))  # log 2 + 1/2
        tensor([1.1931, 1.1931])
    """
    require_range("correctness_ranking", "lam", lam, 0.0)
    require_classes("correctness_ranking", labels)
    log_f = log_softmax(logits)
    losses = -expected(log_f, labels)
    if history is None:
        return losses
    confidence = log_f.amax(dim=1).exp()
    ahead = history.to(log_f.dtype) - history.to(log_f.dtype).roll(-1)
    surer = confidence - confidence.roll(-1)
    return losses + lam * functional.relu(ahead.abs() - ahead.sign() * surer)


class CorrectnessHistory(nn.Module):
    """Counts of how often the network was right about each training row; part of a checkpoint, as module buffers.

    Args:
        rows: Number of training rows.

    Example:
        >>> history = CorrectnessHistory(3)
        >>> rows = torch.tensor([2, 0])
        >>> history.record(rows, torch.tensor([True, False]))
        >>> history.share(torch.arange(3))
        tensor([0., 0., 1.])
    """

    right: Tensor
    passes: Tensor

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("right", torch.zeros(rows, dtype=torch.int32))
        self.register_buffer("passes", torch.zeros(rows, dtype=torch.int32))

    def share(self, rows: Tensor) -> Tensor:
        """Return the share of passes in which rows int64 (N,) were right, float32 (N,); 0 for rows not seen yet."""
        return self.right[rows] / self.passes[rows].clamp_min(1)

    def record(self, rows: Tensor, right: Tensor) -> None:
        """Count one pass over distinct rows int64 (N,), with `right` (N,) True for right answers."""
        self.right[rows] += right.to(torch.int32)
        self.passes[rows] += 1
