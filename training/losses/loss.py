"""What a loss looks like."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Loss(Protocol):
    """A loss per example; coefficients are keyword arguments with the defaults of their source."""

    def __call__(self, logits: Tensor, labels: Tensor, /) -> Tensor:
        """Map logits (N, K) and labels int64 (N,) to losses (N,)."""
        ...
