"""The contracts of architectures, one for each kind of input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from training.inputs import ImageShape, InputShape, TableShape, TokenShape


class Network(nn.Module, ABC):
    """A network from preprocessed inputs to logits: an `ImageNetwork`, a `TokenNetwork` or a `TableNetwork`."""

    takes: ClassVar[type[InputShape]]


class ImageNetwork(Network):
    """A network from scaled images to logits.

    Args:
        channels: Channels of the images.
        classes: Columns of the logits.
        dropout: Probability of dropping a unit while training, in [0, 1).
    """

    takes = ImageShape
    size: ClassVar[int] = 32  # side of the square input images

    @abstractmethod
    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, channels, size, size) to logits float32 (N, classes)."""


class TokenNetwork(Network):
    """A network from tokens to logits.

    Args:
        vocabulary: Number of token ids; 0 is padding.
        classes: Columns of the logits.
        dropout: Probability of dropping a unit while training, in [0, 1).
    """

    takes = TokenShape

    @abstractmethod
    def __init__(self, vocabulary: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, tokens: Tensor) -> Tensor:
        """Map int64 (N, L) in 0 … vocabulary − 1 to logits float32 (N, classes)."""


class TableNetwork(Network):
    """A network from rows of a table to logits.

    Args:
        numbers: Values per row, from `training.preprocess.TableInput`.
        categories: Number of known categories per column, with codes from 1; 0 is for all others.
        classes: Columns of the logits.
        dropout: Probability of dropping a unit while training, in [0, 1).
    """

    takes = TableShape

    @abstractmethod
    def __init__(self, numbers: int, categories: Sequence[int], classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, row: tuple[Tensor, Tensor]) -> Tensor:
        """Map numbers float32 (N, numbers) and codes int64 (N, …) to logits float32 (N, classes)."""
