"""Constants for the logits of a trained network."""

from __future__ import annotations

from torch import Tensor, nn


class Shift(nn.Module):
    """Add a constant to each class's logit, in evaluation mode only: training sees the logits as they are.

    Args:
        shift: The constants, (K,).

    Example:
        >>> import torch
        >>> Shift(torch.tensor([1.0, -1.0])).eval()(torch.zeros(1, 2))
        tensor([[ 1., -1.]])
    """

    shift: Tensor

    def __init__(self, shift: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift.float())

    def forward(self, logits: Tensor) -> Tensor:
        """Map logits (N, K) to logits (N, K)."""
        return logits if self.training else logits + self.shift
