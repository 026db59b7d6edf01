"""What a loss looks like."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Loss(Protocol):
    """A loss per example; coefficients are keyword arguments with the defaults of their source.

    All of it is computed in float32 where the logits have half precision, and in their own precision otherwise, so that
    a loss is the same number inside and outside of autocast.
    """

    def __call__(self, logits: Tensor, labels: Tensor, /) -> Tensor:
        """Map logits and labels to one value per example.

        Args:
            logits: Pre-softmax scores, floating (N, K), finite.
            labels: Column of the true class, int64 (N,), in 0 … K − 1; or, where the loss is an expectation over the
                label, the weight of each class, floating (N, K), rows that sum to 1, as mixup makes them.

        Returns:
            Losses (N,), float32, or float64 for logits in float64.

        Raises:
            ConfigurationError: A coefficient is out of its range, or the loss needs the first form of labels.
        """
        ...
