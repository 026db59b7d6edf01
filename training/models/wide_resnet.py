"""Wide residual network."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from training.models.kaiming import start_from_kaiming
from training.models.network import ImageNetwork

STEM = 16
DEPTH, FACTOR = 16, 4
WIDTHS = tuple(factor * FACTOR for factor in (16, 32, 64))
BLOCKS = (DEPTH - 4) // 6  # of each stage: four layers stand outside of the blocks' pairs


class Block(nn.Module):
    """Two 3 × 3 convolutions, each after batch normalisation and ReLU, with dropout between, beside a shortcut.

    Where the shape changes, the shortcut is a 1 × 1 convolution of the normalised input.

    Args:
        width: Channels of the input.
        planes: Channels of the output.
        stride: Step of the first convolution.
        dropout: Probability of dropping an entry of a map between the convolutions.
    """

    def __init__(self, width: int, planes: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(width, planes, 1, stride, bias=False) if width != planes else None

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, width, H, W) to (N, planes, H / stride, W / stride)."""
        active = functional.relu(self.bn1(maps))
        inner = self.dropout(functional.relu(self.bn2(self.conv1(active))))
        output: Tensor = self.conv2(inner) + (maps if self.shortcut is None else self.shortcut(active))
        return output


class WideResNet16x4(ImageNetwork):
    """WRN-16-4: three stages of two residual blocks, four times as wide as the first residual networks.

    The stages are 64, 128 and 256 wide; the second and third halve the image. 2,748,890 parameters for three channels
    and ten classes.

    Args:
        channels: Channels of the images, C.
        classes: Number of classes, K.
        dropout: Probability of dropping an entry between the two convolutions of a block; the paper uses 0.3 or 0.4.

    References:
        Zagoruyko & Komodakis 2016, Wide residual networks, table 1.

    Example:
        >>> import torch
        >>> WideResNet16x4(3, 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(channels, classes)
        self.conv1 = nn.Conv2d(channels, STEM, 3, padding=1, bias=False)
        self.layer1 = _stage(STEM, WIDTHS[0], 1, dropout)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], 2, dropout)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], 2, dropout)
        self.bn = nn.BatchNorm2d(WIDTHS[2])
        self.linear = nn.Linear(WIDTHS[2], classes)
        start_from_kaiming(self)

    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, C, 32, 32) to logits float32 (N, K)."""
        maps = self.layer3(self.layer2(self.layer1(self.conv1(images))))
        logits: Tensor = self.linear(functional.relu(self.bn(maps)).mean(dim=(2, 3)))
        return logits


def _stage(width: int, planes: int, stride: int, dropout: float) -> nn.Sequential:
    rest = (Block(planes, planes, 1, dropout) for _ in range(BLOCKS - 1))
    return nn.Sequential(Block(width, planes, stride, dropout), *rest)
