"""The exponential moving average of a network's weights."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn


class WeightAverage:
    """A copy of a network whose weights follow the trained ones slowly: a ← β a + (1 − β) w after each step.

    The first steps would weigh the untrained weights too much, so β rises to `decay` as (1 + t) / (10 + t) in step t.
    Statistics of batch normalisation are averaged as the weights are; counters are copied.

    Args:
        module: The network, on its training device.
        decay: β, in (0, 1).

    References:
        Polyak, Juditsky 1992, Acceleration of stochastic approximation by averaging. The rise of β is that of
        TensorFlow's `ExponentialMovingAverage` with `num_updates`.

    Example:
        >>> network = nn.Linear(1, 1, bias=False)
        >>> average = WeightAverage(network, decay=0.99)
        >>> before = network.weight.item()
        >>> with torch.no_grad():
        ...     _ = network.weight.add_(11)
        >>> average.update(network)
        >>> round(average.module.weight.item() - before, 4)  # 11 · (1 − 2/11)
        9.0
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = deepcopy(module).eval().requires_grad_(False)
        self._steps = 0
        self._decay = decay

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Follow the weights of `module` after a step."""
        self._steps += 1
        share = 1 - min(self._decay, (1 + self._steps) / (10 + self._steps))
        pairs = zip(*(each.state_dict(keep_vars=True).values() for each in (self.module, module)), strict=True)
        for own, new in {id(own): (own, new) for own, new in pairs}.values():  # once, where layers share weights
            if own.is_floating_point():
                own.lerp_(new, share)
            else:
                own.copy_(new)

    def state(self) -> dict[str, Any]:
        """Return tensors and counter for a checkpoint."""
        return {"module": self.module.state_dict(), "steps": self._steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.module.load_state_dict(state["module"])
        self._steps = state["steps"]
