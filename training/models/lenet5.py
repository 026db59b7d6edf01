"""LeNet-5, modernised."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from training.models.kaiming import start_from_kaiming
from training.models.network import ImageNetwork


class LeNet5(ImageNetwork):
    """Three 5 × 5 convolutions and two linear layers, with max-pooling and ReLU in place of the originals.

    | layer | output |
    |---|---|
    | input | C × 32 × 32 |
    | convolution, ReLU, max-pool 2 | 6 × 14 × 14 |
    | convolution, ReLU, max-pool 2 | 16 × 5 × 5 |
    | convolution, ReLU, dropout | 120 |
    | linear, ReLU, dropout | 84 |
    | linear | K |

    All weights start from Kaiming's normal distribution for ReLU, by fan-out in convolutions and by fan-in in linear
    layers (there, a fixed small deviation costs 2 to 3 % of accuracy with 300 digits); all biases start from zero. The
    last layer gives logits; softmax belongs to the calibrator.

    Args:
        channels: Channels of the images, C.
        classes: Number of classes, K.
        dropout: Probability of dropping a unit after the third convolution and after the first linear layer.

    References:
        LeCun et al. 1998, Gradient-based learning applied to document recognition, section II.B.
        He et al. 2015, Delving deep into rectifiers, section 2.2.

    Example:
        >>> import torch
        >>> LeNet5(1, 10)(torch.zeros(3, 1, 32, 32)).shape
        torch.Size([3, 10])
    """

    size: ClassVar[int] = 32

    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(channels, classes)
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 120, 5),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(84, classes),
        )
        start_from_kaiming(self)

    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, C, 32, 32) to logits float32 (N, K)."""
        logits: Tensor = self.layers(images)
        return logits
