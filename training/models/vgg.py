"""VGG-16 with batch normalisation, for small images."""

from __future__ import annotations

from torch import Tensor, nn

from training.models.kaiming import start_from_kaiming
from training.models.network import ImageNetwork

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16BN(ImageNetwork):
    """Thirteen 3 × 3 convolutions in five stages, each of which halves the image, and one linear layer.

    Each convolution, with bias, is followed by batch normalisation and ReLU, each stage by max-pooling. The fifth stage
    reduces 32 × 32 to one pixel, so the original's two hidden linear layers are left out. 14,728,266 parameters for
    three channels and ten classes.

    Args:
        channels: Channels of the images, C.
        classes: Number of classes, K.
        dropout: Probability of dropping one of the 512 features before the linear layer.

    References:
        Simonyan & Zisserman 2015, Very deep convolutional networks for large-scale image recognition, table 1 (D).
        Ioffe & Szegedy 2015, Batch normalization.

    Example:
        >>> import torch
        >>> VGG16BN(3, 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(channels, classes)
        layers: list[nn.Module] = []
        width = channels
        for stage in STAGES:
            for planes in stage:
                layers += [nn.Conv2d(width, planes, 3, padding=1), nn.BatchNorm2d(planes), nn.ReLU(inplace=True)]
                width = planes
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, classes)
        start_from_kaiming(self)

    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, C, 32, 32) to logits float32 (N, K)."""
        logits: Tensor = self.linear(self.dropout(self.features(images).flatten(1)))
        return logits
