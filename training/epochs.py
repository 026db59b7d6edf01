"""The record of a run and of its epochs. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.evaluate import Evaluation


@dataclass(frozen=True)
class Epoch:
    """One pass over the training rows.

    Attributes:
        number: Counted from 1.
        of: Number of epochs.
        loss: Mean loss over the rows, during the epoch.
        accuracy: Share of rows whose top label was right, during the epoch; for mixed rows, the label of more weight.
        seconds: Duration without evaluation.
        learning_rate: Learning rate of the last step.
        validation: Metrics on the validation rows, if there are any.
    """

    number: int
    of: int
    loss: float
    accuracy: float
    seconds: float = 0.0
    learning_rate: float = 0.0
    validation: Evaluation | None = None


OnEpoch = Callable[[Epoch], None]


@dataclass(frozen=True)
class Step:
    """A step of an epoch, done.

    Attributes:
        epoch: Number of the epoch, from 1.
        of: Number of epochs.
        number: Number of the step, from 1.
        steps: Steps of the epoch.
        rows: Training rows per second since the epoch or its last interruption began.
    """

    epoch: int
    of: int
    number: int
    steps: int
    rows: float


OnStep = Callable[[Step], None]


@dataclass(frozen=True)
class Outcome:
    """The result of training beside the weights.

    Attributes:
        epochs: All epochs, including those before an interruption.
        best: Number of the epoch whose weights the module has.
        learned: Learned epoch of each training row, int32 (N,); with mixup, by the row's own label.
    """

    epochs: list[Epoch]
    best: int
    learned: NDArray[np.int32]


def epoch_from(document: dict[str, Any]) -> Epoch:
    """Restore an epoch from the document that `dataclasses.asdict` made of it; null is NaN in its metrics."""
    validation = document["validation"]
    if validation is not None:
        validation = Evaluation(
            **{name: float("nan") if value is None else value for name, value in validation.items()}
        )
    return Epoch(**{**document, "validation": validation})
