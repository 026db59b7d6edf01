"""A loss with its coefficients and its memory of each training row, as called by the loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.errors import ConfigurationError
from training.losses.correctness_ranking import CorrectnessHistory
from training.losses.loss import Loss
from training.own import blamed


class Criterion(nn.Module):
    """A loss that knows which training rows it sees.

    Most losses depend on logits and labels alone. A loss with an argument `history` also gets the share of earlier
    passes in which each row was right; the criterion keeps the counts, so its `state_dict` belongs in a checkpoint.

    Args:
        loss: The pure function.
        coefficients: Its coefficients by name.
        rows: Number of training rows.
        classes: Number of classes, K.
        adjustment: Added to the logits, (K,); None for nothing.

    Attributes:
        description: The loss with all its coefficients.

    Raises:
        ConfigurationError: A coefficient is unknown or out of range.

    Example:
        >>> from training.losses.focal import focal
        >>> Criterion(focal, {"gamma": 2.0}, rows=10)(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([7]))
        tensor([0.1733])
        >>> Criterion(focal, {}, rows=10).description
        'focal(gamma=3)'
    """

    adjustment: Tensor | None

    def __init__(
        self,
        loss: Loss,
        coefficients: Mapping[str, float],
        rows: int,
        classes: int = 2,
        *,
        adjustment: NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__()
        added = None if adjustment is None else torch.from_numpy(adjustment).float()
        self.register_buffer("adjustment", added, persistent=False)  # made of the settings and the rows
        keywords = {
            name: parameter
            for name, parameter in inspect.signature(loss).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        remembers = keywords.pop("history", None) is not None
        strange = sorted(set(coefficients) - set(keywords))
        if strange:
            raise ConfigurationError(
                f"unknown coefficients of the loss: {', '.join(strange)}; "
                f"expected {', '.join(keywords) if keywords else 'none'}"
            )
        without = [name for name, each in keywords.items() if each.default is each.empty and name not in coefficients]
        if without:
            raise ConfigurationError(f"the loss needs a value for the coefficient {', '.join(without)}")
        self._loss: Callable[..., Tensor] = partial(loss, **coefficients)
        name = getattr(loss, "__name__", type(loss).__name__)
        with blamed("loss", name):  # also for coefficients out of range
            self._loss(torch.zeros(1, classes), torch.zeros(1, dtype=torch.int64))
        self.history = CorrectnessHistory(rows) if remembers else None
        # A coefficient that is 0 unless given is left out, so that it can come later than a checkpoint.
        values = {name: coefficients.get(name, each.default) for name, each in keywords.items()}
        values = {name: value for name, value in values.items() if name in coefficients or value}
        told = {key: f"{value:g}" if isinstance(value, int | float) else repr(value) for key, value in values.items()}
        self.description = f"{name}({', '.join(f'{key}={value}' for key, value in told.items())})"
        if added is not None:
            self.description += f" of logits + {', '.join(f'{value:g}' for value in added.tolist())}"

    def extra_repr(self) -> str:
        """Return the loss with all its coefficients, for `print`."""
        return self.description

    def forward(self, logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """Return the losses (N,) of logits (N, K) and labels of training rows int64 (N,), and count these rows."""
        if self.adjustment is not None:
            logits = logits + self.adjustment
        if self.history is None:
            return self._loss(logits, labels)
        losses = self._loss(logits, labels, history=self.history.share(rows))
        self.history.record(rows, logits.detach().argmax(dim=1) == labels)
        return losses
