"""ResNet-50 for ImageNet, from torchvision."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from training.errors import ConfigurationError
from training.models.network import ImageNetwork
from training.models.torchvision_operators import define_missing_operators


class ImageNetResNet50(ImageNetwork):
    """torchvision's ResNet-50: a 7 × 7 stem with pooling, bottlenecks with strides in their 3 × 3 convolutions.

    25,557,032 parameters for three channels and a thousand classes. torchvision initialises the weights; its published
    weights can be loaded (`training.models.published`).

    Args:
        channels: Channels of the images; must be three.
        classes: Number of classes, K.
        dropout: Probability of dropping a feature before the linear layer.

    Raises:
        ConfigurationError: torchvision is not installed for this PyTorch, or the number of channels is not three.

    References:
        He et al. 2016, Deep residual learning for image recognition, table 1.
        Goyal et al. 2017, Accurate, large minibatch SGD, section 5.1 (where the strides are).
    """

    size: ClassVar[int] = 224

    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(channels, classes)
        define_missing_operators()
        try:
            from torchvision.models import resnet50  # optional, and only this network needs it
        except (ImportError, RuntimeError) as error:  # RuntimeError: built for another PyTorch
            raise ConfigurationError(
                f"the model 'imagenet_resnet50' requires torchvision for this PyTorch ({torch.__version__}): "
                f"pip install torchvision ({error})"
            ) from error
        if channels != 3:
            raise ConfigurationError(f"the model 'imagenet_resnet50' requires images with 3 channels, got {channels}")
        self.resnet = resnet50(weights=None, num_classes=classes)
        self.linear = self.resnet.fc
        self.resnet.fc = torch.nn.Dropout(dropout)

    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, 3, 224, 224) to logits float32 (N, K)."""
        logits: Tensor = self.linear(self.resnet(images))
        return logits
