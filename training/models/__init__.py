"""Architectures, by name. Each takes `channels`, `classes` and its own keywords, and says which `size` it sees."""

from training.models.lenet5 import LeNet5
from training.models.network import Network

MODELS: dict[str, type[Network]] = {
    "lenet5": LeNet5,
}

__all__ = ["MODELS", "LeNet5", "Network"]
