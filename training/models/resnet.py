"""Residual networks for small images: their common base, ResNet-18 and ResNet-50."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from training.models.kaiming import start_from_kaiming
from training.models.network import ImageNetwork


def projection(width: int, planes: int, stride: int) -> nn.Module:
    """Return a shortcut: the identity, or a 1 × 1 convolution with batch normalisation where the shape changes."""
    if stride == 1 and width == planes:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(width, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions beside a shortcut.

    Args:
        width: Channels of the input.
        planes: Channels of the output.
        stride: Step of the first convolution.
        shortcut: Makes the shortcut from these three numbers.
    """

    expansion: ClassVar[int] = 1

    def __init__(
        self, width: int, planes: int, stride: int, shortcut: Callable[[int, int, int], nn.Module] = projection
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = shortcut(width, planes, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, width, H, W) to (N, planes, H / stride, W / stride)."""
        inner = functional.relu(self.bn1(self.conv1(maps)))
        return functional.relu(self.bn2(self.conv2(inner)) + self.shortcut(maps))


class Bottleneck(nn.Module):
    """A 3 × 3 convolution between two of 1 × 1, beside a shortcut.

    Args:
        width: Channels of the input.
        planes: Channels of the 3 × 3 convolution; the output has four times as many.
        stride: Step of the 3 × 3 convolution.
    """

    expansion: ClassVar[int] = 4

    def __init__(self, width: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, 4 * planes, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * planes)
        self.shortcut = projection(width, 4 * planes, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, width, H, W) to (N, 4 · planes, H / stride, W / stride)."""
        inner = functional.relu(self.bn1(self.conv1(maps)))
        inner = functional.relu(self.bn2(self.conv2(inner)))
        return functional.relu(self.bn3(self.conv3(inner)) + self.shortcut(maps))


class ResidualNetwork(ImageNetwork):
    """A 3 × 3 convolution without pooling, stages of residual blocks, the mean over the pixels, a linear layer.

    All stages but the first halve the image.

    Args:
        channels: Channels of the images, C.
        classes: Number of classes, K.
        dropout: Probability of dropping a feature before the linear layer.
    """

    block: ClassVar[type[BasicBlock | Bottleneck]]
    widths: ClassVar[tuple[int, ...]]
    blocks: ClassVar[tuple[int, ...]]  # of each stage

    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(channels, classes)
        width = self.widths[0]
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for number, (planes, blocks) in enumerate(zip(self.widths, self.blocks, strict=True), start=1):
            stage = [self.block(width, planes, 1 if number == 1 else 2)]
            width = planes * self.block.expansion
            stage += [self.block(width, planes, 1) for _ in range(blocks - 1)]
            setattr(self, f"layer{number}", nn.Sequential(*stage))
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, classes)
        start_from_kaiming(self)

    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, C, 32, 32) to logits float32 (N, K)."""
        maps = functional.relu(self.bn1(self.conv1(images)))
        for number in range(1, len(self.widths) + 1):
            maps = getattr(self, f"layer{number}")(maps)
        logits: Tensor = self.linear(self.dropout(maps.mean(dim=(2, 3))))
        return logits


class ResNet(ResidualNetwork):
    """Four stages 64, 128, 256 and 512 wide, so that 32 × 32 ends as 4 × 4; otherwise as `ResidualNetwork`.

    Shortcuts that change the shape are 1 × 1 convolutions with batch normalisation (option B).

    References:
        He et al. 2016, Deep residual learning for image recognition, table 1.
    """

    widths = (64, 128, 256, 512)


class ResNet18(ResNet):
    """Two basic blocks a stage; 11,173,962 parameters for three channels and ten classes; otherwise as `ResNet`.

    Example:
        >>> import torch
        >>> ResNet18(3, 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    block = BasicBlock
    blocks = (2, 2, 2, 2)


class ResNet50(ResNet):
    """3, 4, 6 and 3 bottlenecks; 23,520,842 parameters for three channels and ten classes; otherwise as `ResNet`."""

    block = Bottleneck
    blocks = (3, 4, 6, 3)
