"""The settings of a training run."""

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
from training.recipe import Recipe, require

Entry = TypeVar("Entry")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Recipe):
    """One training run; the same configuration gives the same model, byte for byte, on the same machine.

    Attributes, beside those of `Recipe`:
        dataset: Key of `training.data.DATASETS`; classes may follow after a colon (`cifar10:bird,cat`).
        data: Folder of data sets; None for CANDOR_DATA. Not stored with the model.
        data_settings: Settings of the data set's reader by name, such as `length` or `label`.
        rows: Rows of the data set to keep, classes in proportion and the test part complete; None for all.
        test_rows: Rows to set apart for testing if the data set has no test part.
        model: Key of `training.models.MODELS`.
        loss: Key of `training.losses.LOSSES`.
        coefficients: The loss's coefficients by name.
        calibrator: Key of `calibrators.CALIBRATORS`, fitted on the reference's fit rows.
        name: Name of the model in the bundle; derived from the data set if None.
        train_rows: Rows that the network learns from; 0 for all that the other parts leave.
        validation_rows: Held-out rows for early stopping and model selection.
        reference_rows: Held-out rows for the bundle; the data set's remaining rows are feedback.
        fit_share: Share of the reference rows that the calibrator is fitted on.
        certify_share: Share of the reference rows that certify; the rest are gate rows.
        stratified: Whether every part has the classes in proportion; otherwise parts are cut at random.
        dropout: Probability of dropping a unit of the fully connected layers, in [0, 1).
        resize: Whether the bundle resizes encoded images of another size instead of refusing them. Always on if the
            data set's own images were resized (an image folder with `size`).
        centred: Whether to subtract the mean over the training images from each channel. Helps with photographs;
            without it, black stays zero and a dimmer image is a smaller input.

    Raises:
        ConfigurationError: A value is out of range.
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
        minima = {"rows": 1, "reference_rows": 1, "train_rows": 0, "validation_rows": 0, "test_rows": 0}
        for name, least in minima.items():
            value = getattr(self, name)
            require(name, value, value is None or value >= least, f"at least {least}")
        require(
            "name",
            repr(self.name),
            self.name is None or bool(re.fullmatch(MODEL_NAME, self.name)),
            "up to 64 lower-case letters, digits, _ and -, starting with a letter or digit",
        )
        for name, value in self.coefficients.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            require(f"coefficient {name}", repr(value), number, "a number")
        require("dropout", self.dropout, 0 <= self.dropout < 1, "at least 0 and less than 1")
        shares = (self.fit_share, self.certify_share)
        require("fit_share, certify_share", shares, min(shares) > 0 and sum(shares) < 1, "positive, with a sum below 1")

    def read(self) -> Dataset:
        """Read the data set, before it is cut into parts; raises as `load` does."""
        options = DataOptions(self.data, rows=self.rows, test_rows=self.test_rows, settings=self.data_settings)
        return load(self.dataset, options)

    def load(self) -> tuple[Dataset, Splits]:
        """Return the data set, encoded by its training rows, and its parts.

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
        """Return the loop's settings by name, for the record."""
        told = {field.name: getattr(self, field.name) for field in fields(Recipe)}
        return told | {"milestones": list(self.milestones)}

    def data_options(self) -> dict[str, Any]:
        """Return the data set's settings for the record: JSON-able, tuples as lists."""
        options = {"rows": self.rows, "test_rows": self.test_rows, **self.data_settings}
        told = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        return {name: value for name, value in told.items() if value not in (None, 0)}

    @property
    def model_name(self) -> str:
        """Name of the model in the bundle: `name`, or one derived from the data set.

        Example:
            >>> TrainConfig(dataset="cifar10:bird,cat").model_name
            'cifar10-bird-cat'
        """
        return self.name or re.sub(r"[^a-z0-9_]+", "-", self.dataset.lower()).strip("-")[:64]


def choose(kind: str, registry: Mapping[str, Entry], name: str) -> Entry:
    """Look up a name in a registry; raises ConfigurationError, which lists the known names."""
    if name not in registry:
        raise ConfigurationError(f"unknown {kind} {name!r}, expected one of: {', '.join(sorted(registry))}")
    return registry[name]
