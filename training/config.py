"""What a training run is asked to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from bundle.manifest import MODEL_NAME
from training.data.splits import Splits, split
from training.errors import ConfigurationError

Entry = TypeVar("Entry")
_LARGEST_STEP = 1e6


@dataclass(frozen=True)
class TrainConfig:
    """One training run, complete: the same configuration gives the same model, byte for byte, on the same machine.

    Attributes:
        dataset: Key of `training.data.DATASETS`.
        model: Key of `training.models.MODELS`.
        loss: Key of `training.losses.LOSSES`.
        coefficients: The loss's coefficients by name.
        calibrator: Key of `calibrators.CALIBRATORS`, fitted on the reference's fit rows.
        name: Name of the model in the bundle; the data set's when None.
        seed: Seed of the split, the initial weights and the order of the batches; 0 … 2**63 − 1.
        train_rows: Rows that the network learns from.
        reference_rows: Held-out rows that go into the bundle; the data set's remaining rows are feedback.
        fit_share: Share of the reference rows that the calibrator is fitted on.
        certify_share: Share of the reference rows that certify; the rest are gate rows.
        epochs: Passes over the training rows; there is no early stopping.
        batch_size: Rows per step.
        learning_rate: Adam's step size.
        dropout: Probability of dropping a unit of the fully connected layers, in [0, 1).
        resize: Whether the bundle resizes encoded images of another size, or refuses them.
        threads: Threads that PyTorch computes with; results are reproducible for the same number.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    dataset: str = "digits"
    model: str = "lenet5"
    loss: str = "cross_entropy"
    coefficients: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    calibrator: str = "temperature"
    name: str | None = None
    seed: int = 0
    train_rows: int = 300
    reference_rows: int = 400
    fit_share: float = 0.5
    certify_share: float = 0.45
    epochs: int = 60
    batch_size: int = 32
    learning_rate: float = 1e-3
    dropout: float = 0.0
    resize: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("train_rows", "reference_rows", "epochs", "batch_size", "threads"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigurationError(f"{name} is {value}, expected at least 1")
        if not 0 <= self.seed < 2**63:
            raise ConfigurationError(f"seed is {self.seed}, expected 0 … 2**63 − 1")
        if not 0 < self.learning_rate <= _LARGEST_STEP:
            raise ConfigurationError(
                f"learning_rate is {self.learning_rate}, expected a positive number of at most {_LARGEST_STEP:g}"
            )
        if self.name is not None and not re.fullmatch(MODEL_NAME, self.name):
            raise ConfigurationError(
                f"name is {self.name!r}, expected up to 64 lower-case letters, digits, _ and -, a letter or digit first"
            )
        if not 0 <= self.dropout < 1:
            raise ConfigurationError(f"dropout is {self.dropout}, expected at least 0 and less than 1")
        if not (self.fit_share > 0 and self.certify_share > 0 and self.fit_share + self.certify_share < 1):
            raise ConfigurationError(
                f"fit_share {self.fit_share} and certify_share {self.certify_share}, "
                "expected both positive and a sum below 1, so that gate rows remain"
            )

    def splits(self, rows: int) -> Splits:
        """The parts of a data set of that many rows; raises ConfigurationError when there are too few.

        Example:
            >>> len(TrainConfig(seed=3).splits(1797).feedback)
            1097
        """
        return split(
            rows,
            seed=self.seed,
            train_rows=self.train_rows,
            reference_rows=self.reference_rows,
            fit_share=self.fit_share,
            certify_share=self.certify_share,
        )


def choose(kind: str, registry: Mapping[str, Entry], name: str) -> Entry:
    """Look a name up in a registry.

    Raises:
        ConfigurationError: The registry has no such name; the message lists those it has.
    """
    if name not in registry:
        raise ConfigurationError(f"unknown {kind} {name!r}, expected one of: {', '.join(sorted(registry))}")
    return registry[name]
