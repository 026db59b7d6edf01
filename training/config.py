"""What a training run is asked to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from bundle.manifest import MODEL_NAME
from training.data import DataOptions, Dataset, Splits, load, split
from training.errors import ConfigurationError
from training.recipe import Recipe

Entry = TypeVar("Entry")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Recipe):
    """One training run, complete: the same configuration gives the same model, byte for byte, on the same machine.

    Attributes, beside those of `Recipe`:
        dataset: Key of `training.data.DATASETS`; after a colon, classes of it, parted by commas (`cifar10:bird,cat`).
        data: Folder of data sets; None for the one that CANDOR_DATA names. It is not kept with the model.
        data_settings: Settings of the data set's reader by name, such as `length` or `label`.
        rows: Rows of the data set to keep, every class in proportion and its test part whole; None for all.
        test_rows: Rows to set apart for testing where the data set has no test part.
        model: Key of `training.models.MODELS`.
        loss: Key of `training.losses.LOSSES`.
        coefficients: The loss's coefficients by name.
        calibrator: Key of `calibrators.CALIBRATORS`, fitted on the reference's fit rows.
        name: Name of the model in the bundle; one made of the data set's when None.
        train_rows: Rows that the network learns from; 0 for all that the other parts leave.
        validation_rows: Held-out rows by which training is stopped and models are chosen.
        reference_rows: Held-out rows that go into the bundle; the data set's remaining rows are feedback.
        fit_share: Share of the reference rows that the calibrator is fitted on.
        certify_share: Share of the reference rows that certify; the rest are gate rows.
        stratified: Whether every part gets the classes in proportion; parts are cut at random if not.
        dropout: Probability of dropping a unit of the fully connected layers, in [0, 1).
        resize: Whether the bundle resizes encoded images of another size, or refuses them. It always does where the
            data set's own were resized (an image folder with `size`).
        centred: Whether the mean over the training images is subtracted from each channel. It helps with photographs;
            without, black stays zero, and a dimmer image is a smaller input.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    dataset: str = "digits"
    data: Path | None = None
    data_settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    rows: int | None = None
    test_rows: int = 0
    model: str = "lenet5"
    loss: str = "cross_entropy"
    coefficients: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    calibrator: str = "temperature"
    name: str | None = None
    train_rows: int = 300
    validation_rows: int = 0
    reference_rows: int = 400
    fit_share: float = 0.5
    certify_share: float = 0.45
    stratified: bool = False
    dropout: float = 0.0
    resize: bool = False
    centred: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rows", "reference_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} is {value}, expected at least 1")
        for name in ("train_rows", "validation_rows", "test_rows"):
            value = getattr(self, name)
            if value < 0:
                raise ConfigurationError(f"{name} is {value}, expected at least 0")
        if self.name is not None and not re.fullmatch(MODEL_NAME, self.name):
            raise ConfigurationError(
                f"name is {self.name!r}, expected up to 64 lower-case letters, digits, _ and -, a letter or digit first"
            )
        for name, value in self.coefficients.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigurationError(f"coefficient {name} is {value!r}, expected a number")
        if not 0 <= self.dropout < 1:
            raise ConfigurationError(f"dropout is {self.dropout}, expected at least 0 and less than 1")
        if not (self.fit_share > 0 and self.certify_share > 0 and self.fit_share + self.certify_share < 1):
            raise ConfigurationError(
                f"fit_share {self.fit_share} and certify_share {self.certify_share}, "
                "expected both positive and a sum below 1, so that gate rows remain"
            )

    def read(self) -> Dataset:
        """The data set as it is read, before it is cut into parts; raises as `load` does."""
        options = DataOptions(self.data, rows=self.rows, test_rows=self.test_rows, settings=self.data_settings)
        return load(self.dataset, options)

    def load(self) -> tuple[Dataset, Splits]:
        """The data set, encoded with what its training rows teach, and its parts.

        Raises:
            ConfigurationError: An unknown name or setting, or too few rows.
            DataError: Files are missing or damaged.

        Example:
            >>> data, parts = TrainConfig(dataset="digits", seed=3).load()
            >>> len(data), len(parts.train), len(parts.feedback)
            (1797, 300, 1097)
        """
        data = self.read()
        parts = split(
            data.labels,
            seed=self.seed,
            train_rows=self.train_rows or None,
            validation_rows=self.validation_rows,
            reference_rows=self.reference_rows,
            fit_share=self.fit_share,
            certify_share=self.certify_share,
            test=data.test,
            stratified=self.stratified,
        )
        return data.learned_from(parts.train), parts

    def recipe(self) -> dict[str, Any]:
        """What the loop was told, by name, to be recorded."""
        told = {field.name: getattr(self, field.name) for field in fields(Recipe)}
        return told | {"milestones": list(self.milestones)}

    def data_options(self) -> dict[str, Any]:
        """What was asked of the data set beside its name, to be recorded: JSON-able, a tuple of names as a list."""
        options = {"rows": self.rows, "test_rows": self.test_rows, **self.data_settings}
        told = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        return {name: value for name, value in told.items() if value not in (None, 0)}

    @property
    def model_name(self) -> str:
        """Name of the model in the bundle: `name`, or one made of the data set's.

        Example:
            >>> TrainConfig(dataset="cifar10:bird,cat").model_name
            'cifar10-bird-cat'
        """
        return self.name or re.sub(r"[^a-z0-9_]+", "-", self.dataset.lower()).strip("-")[:64]


def choose(kind: str, registry: Mapping[str, Entry], name: str) -> Entry:
    """Look a name up in a registry.

    Raises:
        ConfigurationError: The registry has no such name; the message lists those it has.
    """
    if name not in registry:
        raise ConfigurationError(f"unknown {kind} {name!r}, expected one of: {', '.join(sorted(registry))}")
    return registry[name]
