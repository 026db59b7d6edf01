"""The inputs of each step, on the device: from memory or a file; images are decoded while the step before runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.scratch import in_file
from training.stored import Stored

Feed = Callable[[Iterable[Tensor]], Generator[Tensor]]
"""From sets of rows, int64 (n,) each, to their inputs on the device."""


def feed(inputs: NDArray[Any] | Stored, device: torch.device) -> Feed:
    """Return what feeds these inputs to a device; arrays in memory go there as a whole, all others batch by batch."""
    if not isinstance(inputs, Stored) and not in_file(inputs):
        resident = torch.from_numpy(np.ascontiguousarray(inputs)).to(device)
        return lambda parts: (resident[rows.to(device)] for rows in parts)

    def streamed(parts: Iterable[Tensor]) -> Generator[Tensor]:
        chosen = (rows.numpy() for rows in parts)
        for read in inputs.batches(chosen) if isinstance(inputs, Stored) else map(inputs.__getitem__, chosen):
            batch = torch.from_numpy(read)
            if device.type == "cuda":  # from pinned memory the copy does not wait
                batch = batch.pin_memory()
            yield batch.to(device, non_blocking=True)

    return streamed
