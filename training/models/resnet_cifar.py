"""The residual networks that were made for CIFAR: ResNet-20, 32, 44, 56 and 110."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from training.models.kaiming import start_from_kaiming
from training.models.network import ImageNetwork

WIDTHS = (16, 32, 64)


class Block(nn.Module):
    """Two 3 × 3 convolutions beside a shortcut that has no parameters.

    Where the output has more channels, the shortcut takes every second pixel and fills up with channels of zeros, half
    of them before and half behind (option A).

    Args:
        width: Channels of the input.
        planes: Channels of the output, as many or twice as many.
    """

    def __init__(self, width: int, planes: int) -> None:
        super().__init__()
        self.stride, self.filling = planes // width, (planes - width) // 2
        self.conv1 = nn.Conv2d(width, planes, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, width, H, W) to (N, planes, H / stride, W / stride)."""
        inner = functional.relu(self.bn1(self.conv1(maps)))
        shortcut = maps
        if self.filling:
            every_second = maps[:, :, :: self.stride, :: self.stride]
            shortcut = functional.pad(every_second, (0, 0, 0, 0, self.filling, self.filling))
        return functional.relu(self.bn2(self.conv2(inner)) + shortcut)


class CifarResNet(ImageNetwork):
    """A 3 × 3 convolution, three stages of n residual blocks, the mean over the pixels, a linear layer: 6 n + 2 layers.

    The stages are 16, 32 and 64 wide; the second and third halve the image. The names of the weights are those of the
    widespread layout (`conv1`, `bn1`, `layer1.0.conv1`, …, `linear`), so that weights go from one to the other.

    Args:
        channels: Channels of the images, C.
        classes: Number of classes, K.
        dropout: Probability of dropping a feature before the linear layer.

    References:
        He et al. 2016, Deep residual learning for image recognition, section 4.2.
    """

    size: ClassVar[int] = 32
    blocks: ClassVar[int]  # of each stage, n

    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(channels, classes)
        self.conv1 = nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = self._stage(WIDTHS[0], WIDTHS[0])
        self.layer2 = self._stage(WIDTHS[0], WIDTHS[1])
        self.layer3 = self._stage(WIDTHS[1], WIDTHS[2])
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(WIDTHS[2], classes)
        start_from_kaiming(self)

    def _stage(self, width: int, planes: int) -> nn.Sequential:
        return nn.Sequential(Block(width, planes), *(Block(planes, planes) for _ in range(self.blocks - 1)))

    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, C, 32, 32) to logits float32 (N, K)."""
        maps = functional.relu(self.bn1(self.conv1(images)))
        maps = self.layer3(self.layer2(self.layer1(maps)))
        logits: Tensor = self.linear(self.dropout(maps.mean(dim=(2, 3))))
        return logits


class ResNet20(CifarResNet):
    """Three blocks a stage; 269,722 parameters for three channels and ten classes; otherwise as `CifarResNet`.

    Example:
        >>> import torch
        >>> ResNet20(3, 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    blocks = 3


class ResNet32(CifarResNet):
    """Five blocks a stage; 464,154 parameters for three channels and ten classes; otherwise as `CifarResNet`."""

    blocks = 5


class ResNet44(CifarResNet):
    """Seven blocks a stage; 658,586 parameters for three channels and ten classes; otherwise as `CifarResNet`."""

    blocks = 7


class ResNet56(CifarResNet):
    """Nine blocks a stage; 853,018 parameters for three channels and ten classes; otherwise as `CifarResNet`."""

    blocks = 9


class ResNet110(CifarResNet):
    """18 blocks a stage; 1,727,962 parameters for three channels and ten classes; otherwise as `CifarResNet`.

    The paper trains it with a first epoch at a tenth of the learning rate.
    """

    blocks = 18
