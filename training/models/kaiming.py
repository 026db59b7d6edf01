"""Initial weights."""

from __future__ import annotations

from torch import nn


def start_from_kaiming(network: nn.Module) -> None:
    """Draw the weights of all convolutions and linear layers from Kaiming's normal distribution for ReLU.

    Convolutions use fan-out, linear layers fan-in; biases start from zero. Batch normalisations keep PyTorch's initial
    scale 1 and shift 0.

    References:
        He et al. 2015, Delving deep into rectifiers, section 2.2.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear):
            linear = isinstance(layer, nn.Linear)
            nn.init.kaiming_normal_(layer.weight, mode="fan_in" if linear else "fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
