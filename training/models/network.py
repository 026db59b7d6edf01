"""What an architecture looks like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn


class Network(nn.Module, ABC):
    """A network from scaled images to logits.

    Args:
        channels: Channels of the images.
        classes: Columns of the logits.
        dropout: Probability of dropping a unit while training, in [0, 1).
    """

    size: ClassVar[int]  # side of the square images that forward takes

    @abstractmethod
    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, channels, size, size) to logits float32 (N, classes)."""
