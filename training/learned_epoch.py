"""The epoch since which each training row has been classified correctly."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LearnedEpochs(nn.Module):
    """The last epoch in which each row was wrong during training; a module, so that checkpoints contain it.

    Args:
        rows: Number of training rows.

    References:
        Wang, Feng, Zhang 2021, Rethinking calibration of deep neural networks, section 5: the epoch since which an
        example has been classified correctly.

    Example:
        >>> learned = LearnedEpochs(3)
        >>> for epoch, right in enumerate([[True, False, False], [True, True, False]], start=1):
        ...     learned.record(epoch, torch.arange(3), torch.tensor(right))
        >>> learned.epochs()
        tensor([1, 2, 3], dtype=torch.int32)
    """

    last_wrong: Tensor

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.register_buffer("last_wrong", torch.zeros(rows, dtype=torch.int32))

    def record(self, epoch: int, rows: Tensor, right: Tensor) -> None:
        """Record whether rows int64 (n,) were right, bool (n,), in this epoch, counted from 1."""
        self.last_wrong[rows] = torch.where(right, self.last_wrong[rows], epoch)

    def epochs(self) -> Tensor:
        """Return each row's learned epoch, int32 (N,), from 1; the last epoch plus 1 for rows wrong in it."""
        return self.last_wrong + 1
