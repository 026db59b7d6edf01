"""Networks and losses as a user would write them, some of them wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.inputs import ImageShape, TableShape, TokenShape


def linear(classes: int, shape: ImageShape, *, width: int = 4) -> nn.Module:
    hidden = shape.channels * shape.height * shape.width
    return nn.Sequential(nn.Flatten(), nn.Linear(hidden, width), nn.ReLU(), nn.Linear(width, classes))


class _Double(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images).double()


def double(classes: int, shape: ImageShape) -> nn.Module:
    return _Double(linear(classes, shape))


class _WrongWidth(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(7, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.linear(images.flatten(1))


def wrong_width(classes: int, shape: ImageShape) -> nn.Module:
    return _WrongWidth(classes)


class _OfTable(nn.Module):
    def __init__(self, classes: int, shape: TableShape) -> None:
        super().__init__()
        self.codes = nn.ModuleList(nn.Embedding(count + 1, 2) for count in shape.categories)
        self.linear = nn.Linear(shape.numbers + 2 * len(self.codes), classes)

    def forward(self, row: tuple[Tensor, Tensor]) -> Tensor:
        numbers, codes = row
        embedded = [embed(codes[:, place]) for place, embed in enumerate(self.codes)]
        return self.linear(torch.cat([numbers, *embedded], dim=1))


def of_table(classes: int, shape: TableShape) -> nn.Module:
    return _OfTable(classes, shape)


def of_tokens(classes: int, shape: TokenShape) -> nn.Module:
    return nn.Sequential(nn.Embedding(shape.vocabulary, 4), nn.Flatten(), nn.Linear(4 * shape.length, classes))


class _Relative(nn.Module):
    """Subtracts the mean of the batch, in evaluation mode too."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits - logits.mean(dim=0)


class _Branching(nn.Module):
    """Its path depends on values, which no graph can follow."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits if float(logits.sum().detach()) > 0 else 2 * logits


def relative(classes: int, shape: ImageShape) -> nn.Module:
    return _Relative(linear(classes, shape))


def branching(classes: int, shape: ImageShape) -> nn.Module:
    return _Branching(linear(classes, shape))


def one_short(classes: int, shape: ImageShape) -> nn.Module:
    return linear(classes - 1, shape)


def frozen(classes: int, shape: ImageShape) -> nn.Module:
    return linear(classes, shape).requires_grad_(requires_grad=False)


def dead(classes: int, shape: ImageShape) -> nn.Module:
    network = linear(classes, shape)
    return nn.Sequential(network, nn.Threshold(1e6, 0.0))


def exploding(classes: int, shape: ImageShape) -> nn.Module:
    network = linear(classes, shape)
    nn.init.constant_(network[1].weight, torch.inf)
    return network


def raising(classes: int, shape: Any) -> nn.Module:
    """Has a mistake of its own."""
    return nn.Linear({"height": 3}["width"], classes)


def no_module(classes: int, shape: ImageShape) -> Any:
    return None


def asymmetric(logits: Tensor, labels: Tensor, *, cost: float = 2.0) -> Tensor:
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return torch.where(labels == 0, cost * losses, losses)


def weighted(logits: Tensor, labels: Tensor) -> Tensor:
    """Knows the number of classes."""
    return functional.cross_entropy(logits, labels, weight=torch.arange(1.0, 11.0), reduction="none")


def without_default(logits: Tensor, labels: Tensor, *, cost: float) -> Tensor:
    return cost * functional.cross_entropy(logits, labels, reduction="none")


def of_three(logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="none")


def failing(logits: Tensor, labels: Tensor) -> Tensor:
    raise ValueError("no such row")


def mean(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels)


def constant(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.ones(len(logits))


def flat(logits: Tensor, labels: Tensor) -> Tensor:
    return 0 * logits.sum(dim=1)


def infinite(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.sum(dim=1) / 0
