"""DenseNet-121 for small images, and DenseNet-BC-100-12, designed for CIFAR."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.models.kaiming import start_from_kaiming
from training.models.network import ImageNetwork


class DenseLayer(nn.Module):
    """A 1 × 1 and a 3 × 3 convolution, each after batch normalisation and ReLU; its output is appended to its input.

    Args:
        width: Channels of the input.
        growth: Appended channels; the 1 × 1 convolution has four times as many.
        dropout: Probability of dropping an entry of a map after each convolution.
    """

    def __init__(self, width: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, width, H, W) to (N, width + growth, H, W)."""
        inner = self.dropout(self.conv1(functional.relu(self.bn1(maps))))
        new = self.dropout(self.conv2(functional.relu(self.bn2(inner))))
        return torch.cat([maps, new], dim=1)


class Transition(nn.Module):
    """Half as many channels, by a 1 × 1 convolution after batch normalisation and ReLU, and half the image, by means.

    Args:
        width: Channels of the input.
        dropout: Probability of dropping an entry of a map after the convolution.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, width // 2, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, width, H, W) to (N, width / 2, H / 2, W / 2)."""
        return functional.avg_pool2d(self.dropout(self.conv(functional.relu(self.bn(maps)))), 2)


class DenseNet(ImageNetwork):
    """A 3 × 3 convolution to twice the growth rate, dense blocks with transitions between, the mean, a linear layer.

    In a dense block every layer sees the outputs of all layers before it.

    Args:
        channels: Channels of the images, C.
        classes: Number of classes, K.
        dropout: Probability of dropping an entry of a map after each convolution but the first.

    References:
        Huang et al. 2017, Densely connected convolutional networks, section 3 and table 1.
    """

    growth: ClassVar[int]
    blocks: ClassVar[tuple[int, ...]]  # layers of each dense block

    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(channels, classes)
        width = 2 * self.growth
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
        for number, depth in enumerate(self.blocks):
            if number:
                layers.append(Transition(width, dropout))
                width //= 2
            layers += [DenseLayer(width + self.growth * place, self.growth, dropout) for place in range(depth)]
            width += self.growth * depth
        self.features = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(width)
        self.linear = nn.Linear(width, classes)
        start_from_kaiming(self)

    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, C, 32, 32) to logits float32 (N, K)."""
        logits: Tensor = self.linear(functional.relu(self.bn(self.features(images))).mean(dim=(2, 3)))
        return logits


class DenseNet121(DenseNet):
    """Blocks of 6, 12, 24 and 16 layers that grow by 32; 6,956,298 parameters for three channels and ten classes."""

    growth = 32
    blocks = (6, 12, 24, 16)


class DenseNetBC100x12(DenseNet):
    """Three blocks of 16 layers that grow by 12; 769,162 parameters for three channels and ten classes."""

    growth = 12
    blocks = (16, 16, 16)
