"""Networks whose capacity or normalisation a study changes; factories as `candor-train --model` takes them."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from training.errors import ConfigurationError
from training.inputs import ImageShape
from training.models.kaiming import start_from_kaiming
from training.models.resnet_cifar import CifarResNet


def resnet(classes: int, shape: ImageShape, *, depth: int = 20, width: int = 16) -> nn.Module:
    """Return a residual network for small images of any depth and width; 20 and 16 give `resnet20`.

    Args:
        classes: Number of classes.
        shape: Shape of the images.
        depth: Layers, 6 n + 2.
        width: Channels of the first stage; the others have two and four times as many.

    Example:
        >>> network = resnet(10, ImageShape(32, 32, scale=(64.0,) * 3), depth=20)
        >>> sum(parameter.numel() for parameter in network.parameters())
        269722
    """
    blocks, rest = divmod(depth - 2, 6)
    if blocks < 1 or rest:
        raise ConfigurationError(f"depth is {depth}, expected 8, 14, 20, …")
    sizes = {"blocks": (blocks,) * 3, "widths": (width, 2 * width, 4 * width)}
    network: nn.Module = type(f"ResNet{depth}x{width}", (CifarResNet,), sizes)(shape.channels, classes)
    return network


def convnet(classes: int, shape: ImageShape, *, batch_norm: bool) -> nn.Module:
    """Return six 3 × 3 convolutions in three stages with max-pooling, their mean, and a linear layer.

    Args:
        classes: Number of classes.
        shape: Shape of the images.
        batch_norm: Whether each convolution is normalised; the initial weights are the same.
    """
    widths = [shape.channels, 32, 32, 64, 64, 128, 128]
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
        layers += [nn.BatchNorm2d(outputs)] if batch_norm else []
        layers.append(nn.ReLU())
        layers += [nn.MaxPool2d(2)] if place % 2 else []
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    start_from_kaiming(network)
    return network
