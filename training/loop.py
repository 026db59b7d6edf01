"""The training loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.errors import DivergedError


@dataclass(frozen=True)
class Epoch:
    """One pass over the training rows.

    Attributes:
        number: Counted from 1.
        of: Number of epochs.
        loss: Mean loss over the rows, as they were met.
        accuracy: Share of rows whose top label was right, as they were met.
    """

    number: int
    of: int
    loss: float
    accuracy: float


def train(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    inputs: NDArray[np.uint8],
    labels: NDArray[np.int64],
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> list[Epoch]:
    """Minimise the mean loss with Adam, for a fixed number of epochs.

    Args:
        module: From inputs to logits; trained in place and left in evaluation mode.
        loss: From logits (N, K) and labels (N,) to losses (N,).
        inputs: uint8 (N, …).
        labels: int64 (N,).
        epochs: Passes over the rows.
        batch_size: Rows per step; the last step of an epoch takes what remains.
        learning_rate: Adam's step size.
        seed: Seed of the order of the rows.
        on_epoch: Called after every epoch.

    Returns:
        The epochs.

    Raises:
        DivergedError: The loss of a step is not finite.
    """
    rows, targets = torch.from_numpy(inputs), torch.from_numpy(labels)
    optimiser = torch.optim.Adam(module.parameters(), lr=learning_rate)
    shuffle = torch.Generator().manual_seed(seed)
    history = []
    module.train()
    for number in range(1, epochs + 1):
        total, right = 0.0, 0
        order = torch.randperm(len(rows), generator=shuffle)
        for step, start in enumerate(range(0, len(rows), batch_size), start=1):
            batch = order[start : start + batch_size]
            logits = module(rows[batch])
            losses = loss(logits, targets[batch])
            mean = losses.mean()
            if not math.isfinite(mean.item()):
                raise DivergedError(
                    f"the loss became {mean.item()} in epoch {number}, step {step}: the run is stopped and nothing is "
                    f"written; a learning rate below {learning_rate:g} usually helps"
                )
            optimiser.zero_grad()
            torch.autograd.backward(mean)
            optimiser.step()
            total += losses.sum().item()
            right += int((logits.argmax(dim=1) == targets[batch]).sum())
        epoch = Epoch(number, epochs, total / len(rows), right / len(rows))
        history.append(epoch)
        if on_epoch is not None:
            on_epoch(epoch)
    module.eval()
    return history
