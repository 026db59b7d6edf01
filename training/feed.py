"""The inputs of each step, on the device: from memory, or decoded from files while the step before is under way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.stored import Stored

Feed = Callable[[Iterable[Tensor]], Generator[Tensor]]
"""From sets of rows, int64 (n,) each, to their inputs on the device."""


def feed(inputs: NDArray[Any] | Stored, device: torch.device) -> Feed:
    """Return what feeds these inputs to a device; an array goes there as a whole, stored images batch by batch."""
    if not isinstance(inputs, Stored):
        resident = torch.from_numpy(np.ascontiguousarray(inputs)).to(device)
        return lambda parts: (resident[rows.to(device)] for rows in parts)
    stored = inputs

    def streamed(parts: Iterable[Tensor]) -> Generator[Tensor]:
        for images in stored.batches(rows.numpy() for rows in parts):
            batch = torch.from_numpy(images)
            if device.type == "cuda":  # from pinned memory the copy does not wait
                batch = batch.pin_memory()
            yield batch.to(device, non_blocking=True)

    return streamed
