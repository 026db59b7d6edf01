"""The settings of a training run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from bundle.manifest import MODEL_NAME
from training import photographs, trees
from training.data import DataOptions, Dataset, Splits, load, settings_of, split
from training.data.sizes import Sizes, sizes
from training.errors import ConfigurationError
from training.recipe import Recipe, require
from training.threads import usable_threads
from training.tokenized import tokenizer_of

Entry = TypeVar("Entry")

SAMPLING = ("plain", "balanced")
_NETWORKS = {"image": "lenet5", "tokens": "text_cnn", "array": "table_cnn"}


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Recipe):
    """One training run; the same configuration gives the same model, byte for byte, on the same machine.

    Attributes:
        dataset: A data set that `candor-train list` names; classes may follow after a colon (`cifar10:bird,cat`).
        data: Folder of data sets; None for CANDOR_DATA. Not stored with the model.
        data_settings: Settings of the data set's reader by name, such as `length` or `label`.
        rows: Rows of the data set to keep, classes in proportion and the test part complete; None for all.
        test_rows: Rows to set apart for testing if the data set has no test part.
        model: A network or trees that `candor-train list` names, a factory of your own as `package.module:name` or as
            an entry point of `candor.models`, or a network of another library: `timm:NAME`, `torchvision:NAME`,
            `hf:FOLDER`. `auto` takes boosted trees for tables, `text_cnn` for texts and `lenet5` for images. Texts
            take `hf:FOLDER`, with its tokenizer.
        pretrained: File of weights of such a network (.safetensors, .pth, .npz); `hf:FOLDER` has its own.
        image_size: Side of such a network's images, if not its own.
        max_length: Tokens per text of `hf:FOLDER`; by default what the folder says, at most 512. Longer texts are cut.
        model_settings: Keyword arguments of a factory of your own, or parameters of a library of trees by its own
            names, such as `num_leaves`.
        loss: A loss that `candor-train list` names, or a function of your own as `package.module:name` or as an entry
            point of `candor.losses`.
        coefficients: The loss's coefficients by name.
        calibrator: A calibrator that `candor-train list` names; it is fitted on the reference's fit rows. By default
            `temperature`; for tables `auto`; with class weights, balanced sampling or adjusted logits `platt`, or
            `vector` for more than two classes.
        name: Name of the model in the bundle; derived from the data set if None.
        train_rows: Rows to learn from; 0 and, except for the digits, the default take all that the other parts leave.
        validation_rows: Held-out rows for early stopping and model selection; by default 15 % for trees
            and with `patience`, otherwise none.
        reference_rows: Held-out rows for the bundle; the data set's remaining rows are feedback. By default as many as
            certificates of 95 % require of the rarest class, at most 30 %.
        fit_share: Share of the reference rows that the calibrator is fitted on.
        certify_share: Share of the reference rows that certify; the rest are gate rows.
        stratified: Whether every part has the classes in proportion; otherwise parts are cut at random.
        dropout: Probability of dropping a unit of the fully connected layers, in [0, 1).
        class_weights: Weight of a class in the loss, CLASS=WEIGHT, or `balanced` for all. Undone at calibration.
        sampling: `balanced` draws as many training rows of each class, for networks. Undone at calibration.
        logit_adjustment: Factor of the log class frequencies that the loss adds to a network's logits; 1 makes rare
            classes count as much as others. Undone at calibration.
        resize: Whether the bundle resizes encoded images of another size instead of refusing them. Always on if the
            data set's own images were resized (an image folder with `size`).
        centred: Whether to subtract the mean over the training images from each channel. Helps with photographs;
            without it, black stays zero and a dimmer image is a smaller input.
        by_data: Settings of `training.photographs` that follow the data instead of what they are here. The command line
            names those that were not typed.

    Raises:
        ConfigurationError: A value is out of range.
    """

    dataset: str = "digits"
    data: Path | None = None
    data_settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    rows: int | None = None
    test_rows: int = 0
    model: str = "auto"
    model_settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    pretrained: Path | None = field(default=None, metadata={"name": "weights"})
    image_size: int | None = None
    max_length: int | None = None
    loss: str = "cross_entropy"
    coefficients: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    calibrator: str | None = None
    name: str | None = None
    train_rows: int | None = None
    validation_rows: int | None = None
    reference_rows: int | None = None
    fit_share: float = 0.5
    certify_share: float = 0.45
    stratified: bool = False
    dropout: float = 0.0
    class_weights: tuple[str, ...] = ()
    sampling: Literal["plain", "balanced"] = "plain"
    logit_adjustment: float = 0.0
    resize: bool = False
    centred: bool = False
    by_data: tuple[str, ...] = field(default=(), metadata={"option": False})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("class_weights", "by_data"):  # lists, where read from JSON
            object.__setattr__(self, name, tuple(getattr(self, name)))
        minima = {
            "rows": 1,
            "image_size": 1,
            "max_length": 1,
            "reference_rows": 1,
            "train_rows": 0,
            "validation_rows": 0,
            "test_rows": 0,
        }
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
        require("sampling", repr(self.sampling), self.sampling in SAMPLING, f"one of: {', '.join(SAMPLING)}")
        require("logit_adjustment", self.logit_adjustment, 0 <= self.logit_adjustment < math.inf, "at least 0")
        shares = (self.fit_share, self.certify_share)
        require("fit_share, certify_share", shares, min(shares) > 0 and sum(shares) < 1, "positive, with a sum below 1")

    def read(self) -> Dataset:
        """Read the data set, before it is cut into parts; raises as `load` does."""
        settings = dict(self.data_settings)
        if "words" in settings_of(self.dataset):
            tokenized = self.model.startswith("hf:")
            require("words", settings.get("words"), tokenized or settings.get("words") is not False, "true")
            settings["words"] = not tokenized
        options = DataOptions(self.data, rows=self.rows, test_rows=self.test_rows, settings=settings)
        return self.encoded(load(self.dataset, options))

    def encoded(self, data: Dataset) -> Dataset:
        """Return a data set as the model takes it: texts by the tokenizer of a network that comes with one.

        Raises:
            ConfigurationError: The tokenizer cannot be used, or `max_length` does not apply.
        """
        if data.texts is not None and self.model.startswith("hf:"):
            return data.tokenized(tokenizer_of(self.model, self.max_length))
        require("max_length", self.max_length, self.max_length is None, "none: it belongs to hf:FOLDER and texts")
        return replace(data, texts=None)

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
        return self.cut(data)

    def suited(self, data: Dataset, parts: Splits | None = None) -> tuple[TrainConfig, tuple[str, ...]]:
        """Return this configuration with everything that it leaves to the data, and why, a sentence each.

        Args:
            data: The data set.
            parts: Its parts, if they are cut already.

        Raises:
            ConfigurationError: More threads than processors.
        """
        notes: list[str] = []
        model = self.model
        if model == "auto" and data.columns is not None:
            model = trees.default()
            notes.append(f"The model is {model}, the default for tables." + trees.advice(model))
        elif model == "auto":
            model = _NETWORKS[data.kind]
        calibrator = self.calibrator
        if calibrator is None:
            alpha = self.loss == "focal" and self.coefficients.get("alpha")
            moved = bool(self.class_weights) or self.sampling != "plain" or bool(self.logit_adjustment) or bool(alpha)
            of_shift = "platt" if len(data.label_names) == 2 else "vector"
            calibrator = of_shift if moved else "temperature" if data.columns is None else "auto"
        if parts is None:
            chosen = self._sizes(data)
        else:
            chosen = Sizes(len(parts.train), len(parts.validation), len(parts.reference()))
        follows, note = photographs.suited(self, data, data.outside_test() if parts is None else parts.train)
        notes += [note] if note else []
        suited = replace(
            self,
            **follows,
            by_data=(),
            model=model,
            calibrator=calibrator,
            train_rows=chosen.train or 0,
            validation_rows=chosen.validation,
            reference_rows=chosen.reference,
            threads=usable_threads(self.threads),
        )
        return suited, (*notes, *chosen.notes)

    def _sizes(self, data: Dataset) -> Sizes:
        grows = self.model in trees.TREES or (self.model == "auto" and data.columns is not None)
        asked = (self.train_rows, self.validation_rows, self.reference_rows)
        return sizes(data, *asked, self.certify_share, stops=grows or self.patience is not None)

    def cut(self, data: Dataset) -> tuple[Dataset, Splits]:
        """Return a data set from `read`, encoded by its training rows, and its parts; raises as `load` does."""
        chosen = self._sizes(data)
        parts = split(
            data.labels,
            seed=self.seed,
            train_rows=chosen.train,
            validation_rows=chosen.validation,
            reference_rows=chosen.reference,
            fit_share=self.fit_share,
            certify_share=self.certify_share,
            test=data.test,
            stratified=self.stratified,
            groups=data.groups,
            equal=data.equal,
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


OnStart = Callable[[TrainConfig], None]


def choose(kind: str, registry: Mapping[str, Entry], name: str) -> Entry:
    """Look up a name in a registry; raises ConfigurationError, which lists the known names."""
    if name not in registry:
        raise ConfigurationError(f"unknown {kind} {name!r}, expected one of: {', '.join(sorted(registry))}")
    return registry[name]
