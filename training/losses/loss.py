"""The contract of losses."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Loss(Protocol):
    """A loss per example; coefficients are keyword arguments with the defaults of their source.

    Losses of half-precision logits are computed in float32, others in the logits' precision, so that a loss is the same
    inside and outside of autocast.
    """

    def __call__(self, logits: Tensor, labels: Tensor, /) -> Tensor:
        """Map logits and labels to one value per example.

        Args:
            logits: Pre-softmax scores, floating (N, K), finite.
            labels: Column of the true class, int64 (N,), in 0 … K − 1; or, for losses that are an expectation over the
                label, the weight of each class, floating (N, K), with rows that sum to 1, as from mixup.

        Returns:
            Losses (N,), float32, or float64 for logits in float64.

        Raises:
            ConfigurationError: A coefficient is out of range, or the loss requires the first form of labels.
        """
        ...
