"""Preprocessing that is part of the exported graph, so that a client sends what it has."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional


class ImageInput(nn.Module):
    """From stored images to what a network sees: scale, layout, size.

    Pixels are divided by the root mean square of the training pixels, channel by channel, and not centred: black stays
    zero, so that a dimmer image is a smaller input and not a shifted one.

    Args:
        rms: Root mean square of each channel of the training pixels on the scale 0 … 255, positive, length C.
        size: Side of the square images that the network sees; others are resized (bilinear, half-pixel centres).
    """

    scale: Tensor

    def __init__(self, rms: list[float], size: int) -> None:
        super().__init__()
        self.register_buffer("scale", 1.0 / torch.tensor(rms, dtype=torch.float32))
        self.size = size

    def forward(self, images: Tensor) -> Tensor:
        """Map uint8 (N, H, W, C) to float32 (N, C, size, size)."""
        scaled = (images.to(torch.float32) * self.scale).permute(0, 3, 1, 2)
        if tuple(scaled.shape[2:]) == (self.size, self.size):
            return scaled
        return functional.interpolate(scaled, size=(self.size, self.size), mode="bilinear", align_corners=False)


def channel_rms(images: NDArray[np.uint8]) -> list[float]:
    """Root mean square of each channel of uint8 (N, H, W, C); 1.0 for a channel that is black throughout."""
    mean_square = np.square(images, dtype=np.float64).mean(axis=(0, 1, 2))
    return [float(value) if value > 0 else 1.0 for value in np.sqrt(mean_square)]
