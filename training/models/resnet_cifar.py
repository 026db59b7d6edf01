"""Residual networks designed for CIFAR: ResNet-20, 32, 44, 56 and 110."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from training.models.resnet import BasicBlock, ResidualNetwork


class ZeroPadding(nn.Module):
    """A shortcut without parameters: every second pixel, and as many channels of zeros before as behind (option A).

    Args:
        width: Channels of the input.
        planes: Channels of the output, as many or more.
        stride: Step between the pixels.
    """

    def __init__(self, width: int, planes: int, stride: int) -> None:
        super().__init__()
        self.stride, self.filling = stride, (planes - width) // 2

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, width, H, W) to (N, planes, H / stride, W / stride)."""
        if not self.filling:
            return maps
        strided = maps[:, :, :: self.stride, :: self.stride]
        return functional.pad(strided, (0, 0, 0, 0, self.filling, self.filling))


class Block(BasicBlock):
    """Two 3 × 3 convolutions beside a shortcut without parameters; otherwise as `BasicBlock`."""

    def __init__(self, width: int, planes: int, stride: int) -> None:
        super().__init__(width, planes, stride, ZeroPadding)


class CifarResNet(ResidualNetwork):
    """Three stages 16, 32 and 64 wide with n residual blocks each: 6 n + 2 layers; otherwise as `ResidualNetwork`.

    Weights have the names of the widespread layout (`conv1`, `bn1`, `layer1.0.conv1`, …, `linear`), so that published
    weights can be loaded.

    References:
        He et al. 2016, Deep residual learning for image recognition, section 4.2.
    """

    block = Block
    widths = (16, 32, 64)


class ResNet20(CifarResNet):
    """Three blocks a stage; 269,722 parameters for three channels and ten classes; otherwise as `CifarResNet`.

    Example:
        >>> import torch
        >>> ResNet20(3, 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    blocks = (3, 3, 3)


class ResNet32(CifarResNet):
    """Five blocks a stage; 464,154 parameters for three channels and ten classes; otherwise as `CifarResNet`."""

    blocks = (5, 5, 5)


class ResNet44(CifarResNet):
    """Seven blocks a stage; 658,586 parameters for three channels and ten classes; otherwise as `CifarResNet`."""

    blocks = (7, 7, 7)


class ResNet56(CifarResNet):
    """Nine blocks a stage; 853,018 parameters for three channels and ten classes; otherwise as `CifarResNet`."""

    blocks = (9, 9, 9)


class ResNet110(CifarResNet):
    """18 blocks a stage; 1,727,962 parameters for three channels and ten classes; otherwise as `CifarResNet`.

    The paper trains it with a first epoch at a tenth of the learning rate.
    """

    blocks = (18, 18, 18)
