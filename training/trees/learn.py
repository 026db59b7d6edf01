"""Trained trees: from a table to a graph that gives the library's own answers."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import Columns, Golden, Graph, LabelledLogits
from calibrators import softmax
from importing.converted import Converted
from importing.converters import CONVERTERS
from importing.errors import ImportRefusedError
from importing.native import compare
from training.config import TrainConfig, choose
from training.data import Dataset, Splits
from training.epochs import Epoch, OnEpoch, Outcome
from training.errors import ConfigurationError, ExportError
from training.evaluate import evaluate
from training.exported import Exported
from training.imbalance import class_shift, row_weights
from training.recipe import Recipe
from training.trees import CONVERTER, TREES
from training.trees.hist_gradient_boosting import MOST_CATEGORIES
from training.trees.shift import shifted
from training.trees.table import PATIENCE, ROUNDS, ROUNDS_WITHOUT_VALIDATION, Grown, Table, Task, encoded

_GOLDEN_ROWS = 6
_BETWEEN_ROUNDS_S = 0.2
_LIBRARIES = ("_catboost", "catboost", "lightgbm", "sklearn", "xgboost")
_SHARED = ("seed", "threads", "device", "patience")
"""Settings of the loop that trees have too."""


@dataclass(frozen=True, eq=False)
class GrownTrees:
    """Trained trees with their configuration and data; `training.trained.Trained` for networks.

    Attributes:
        config: The run's settings.
        data: The table as the graph takes it: categories as codes from 0, NaN for missing and unknown values.
        parts: The rows that the trees learned from, and those that they never saw.
        grown: What the library trained.
        converted: The graph, with the effect of class weights undone.
        outcome: One epoch, the last round.
        notes: What the defaults were and why, a sentence each.
    """

    config: TrainConfig
    data: Dataset
    parts: Splits
    grown: Grown
    converted: Converted
    outcome: Outcome
    notes: tuple[str, ...]

    def scored(self, rows: NDArray[np.int64]) -> LabelledLogits:
        """Return the graph's logits for these rows, int64 (n,), with their labels, groups and weights."""
        data = self.data
        return LabelledLogits(
            _logits(self.converted, data.array, rows),
            data.labels[rows],
            group=None if data.groups is None else data.groups[rows],
            weight=None if data.weights is None else data.weights[rows],
        )

    def exported(self) -> Exported:
        """Return the graph, checked against the library on all held-out rows.

        Raises:
            ExportError: The library and the graph differ on a row, or a row alone differs from one among others.
        """
        rows = self.data.array[np.concatenate([self.parts.validation, self.parts.reference()])]
        graph, model = self.converted.graph, self.converted.model
        try:
            check = compare(
                softmax(_logits(self.converted, rows).astype(np.float64)),
                self.converted.native(graph.feeds(rows)),
                rows,
                library=self.converted.library,
            )
        except ImportRefusedError as error:
            raise ExportError(str(error)) from error
        some = self.data.array[self.parts.fit][:_GOLDEN_ROWS]
        inputs = np.concatenate([some, np.zeros_like(some[:1]), np.full_like(some[:1], np.nan)])
        golden = Golden(inputs, _logits(self.converted, inputs))
        if (
            differs := golden.difference(np.concatenate([_logits(self.converted, row[None]) for row in inputs]))
        ) is not None:
            raise ExportError(
                f"the graph answers a row alone differently than among others: {differs.found}, expected "
                f"{differs.expected}"
            )
        return Exported(
            model=model,
            golden=golden,
            graph=graph,
            trees=self.converted.trees,
            difference=check.difference,
            parameters=_leaves(model),
            architecture={"rounds": self.grown.rounds, "library": check.library},
        )

    def described(self) -> dict[str, Any]:
        """Return what the manifest records of the training, beside data and seed."""
        settings = json.loads(json.dumps(dict(self.grown.settings), default=str))
        return {"epochs": self.grown.rounds, "recipe": {"library": self.converted.library, **settings}}


def learn(
    config: TrainConfig, data: Dataset, parts: Splits, notes: tuple[str, ...], on_epoch: OnEpoch | None
) -> GrownTrees:
    """Train trees on the training part of a table.

    With validation rows, training stops once their log loss no longer falls; then the trees are trained again on
    training and validation rows together, with as many rounds.

    Args:
        config: The run's settings, `model` a key of `TREES`.
        data: The table.
        parts: Its parts.
        notes: What the defaults were and why.
        on_epoch: Called with rounds as epochs, several times a second.

    Raises:
        ConfigurationError: The data are not a table, a class has no training rows, a setting does not suit trees or
            the library refuses one, or the library is not installed.
    """
    fit = choose("model", TREES, config.model)
    _check(config, data, parts)
    hist, cat = config.model == "hist_gradient_boosting", config.model == "catboost"
    table = encoded(data, parts.train, ordered=lambda count: cat or (hist and count > MOST_CATEGORIES))
    weights = row_weights(config, data, parts.train)
    rows = _rows(table, parts.train, weights)
    # Weighted like the training rows: the log loss that stops training is that which training lowers.
    validation = _rows(table, parts.validation, row_weights(config, data, parts.validation, like=parts.train))
    began = time.perf_counter()
    shown = -1.0
    rounds = ROUNDS if len(validation) else ROUNDS_WITHOUT_VALIDATION

    def on_round(number: int, loss: float) -> None:
        nonlocal shown
        seconds = time.perf_counter() - began
        if on_epoch is not None and seconds - shown >= _BETWEEN_ROUNDS_S and number < rounds:
            shown = seconds
            on_epoch(Epoch(number, rounds, loss, float("nan"), seconds, 0.0))

    assert table.columns is not None  # noqa: S101 — `encoded` takes tables only
    task = Task(
        classes=len(data.label_names),
        categorical=tuple(
            place for place, column in enumerate(table.columns.columns) if _is_set(config, column.categories)
        ),
        rounds=rounds,
        patience=config.patience or PATIENCE,
        seed=config.seed,
        threads=config.threads or 1,
        settings=config.model_settings,
    )
    try:
        grown = fit(rows, validation if len(validation) else None, task, on_round)
        evaluation = None
        if len(validation):
            before = _converted(config, data, parts, grown, table.columns)
            evaluation = evaluate(_logits(before, table.array, parts.validation), validation.labels)
            both = np.concatenate([parts.train, parts.validation])
            whole = _rows(table, both, row_weights(config, data, both, like=parts.train))
            again = fit(whole, None, replace(task, rounds=grown.rounds), lambda *_: None)
            grown = replace(again, rounds=grown.rounds, losses=grown.losses, settings=grown.settings)
        converted = _converted(config, data, parts, grown, table.columns)
    except ImportRefusedError as error:
        raise ConfigurationError(str(error)) from error
    except Exception as error:  # the libraries refuse settings with errors of their own
        own = type(error).__module__.partition(".")[0] in _LIBRARIES
        if not own and not (config.model_settings and isinstance(error, ValueError | TypeError)):
            raise
        raise ConfigurationError(f"{config.model} refuses to train: {str(error).strip()[:500]}") from error
    loss = float(grown.losses[grown.rounds - 1]) if len(grown.losses) else float("nan")
    last = Epoch(grown.rounds, grown.rounds, loss, float("nan"), time.perf_counter() - began, 0.0, evaluation)
    if on_epoch is not None:
        on_epoch(last)
    return GrownTrees(
        config, table, parts, grown, converted, Outcome([last], grown.rounds, np.empty(0, np.int32)), notes
    )


def _is_set(config: TrainConfig, categories: tuple[str, ...] | None) -> bool:
    """Return whether the library splits a column into sets of categories."""
    if categories is None or config.model == "catboost":
        return False
    return config.model != "hist_gradient_boosting" or len(categories) <= MOST_CATEGORIES


def _check(config: TrainConfig, data: Dataset, parts: Splits) -> None:
    if data.columns is None:
        raise ConfigurationError(
            f"the model {config.model} requires rows of a table, {data.name} has {data.kind} inputs"
        )
    of_networks = [
        field.name
        for field in fields(Recipe)
        if field.name not in _SHARED and getattr(config, field.name) != field.default
    ]
    for name, default in (("loss", "cross_entropy"), ("sampling", "plain"), ("logit_adjustment", 0.0)):
        of_networks += [name] if getattr(config, name) != default else []
    of_networks += [name for name in ("dropout", "coefficients", "centred") if getattr(config, name)]
    if of_networks:
        raise ConfigurationError(
            f"{', '.join(of_networks)}: for networks only. {config.model} takes --class-weight, and its own parameters "
            "as --model-setting"
        )
    seen = np.bincount(data.labels[parts.train], minlength=len(data.label_names))
    if 2 * len(seen) > len(data.labels):
        raise ConfigurationError(
            f"the label has {len(seen):,} different values in {len(data.labels):,} rows, expected few classes"
        )
    if not seen.all():
        raise ConfigurationError(
            f"the class {data.label_names[int(seen.argmin())]!r} has no training rows, and {config.model} requires "
            "some of each class; --stratified gives every part the classes in proportion"
        )


def _rows(table: Dataset, rows: NDArray[np.int64], weights: NDArray[np.float64] | None) -> Table:
    return Table(table.array, rows, table.labels[rows], weights)


def _converted(config: TrainConfig, data: Dataset, parts: Splits, grown: Grown, columns: Columns) -> Converted:
    converted = CONVERTERS[CONVERTER.get(config.model, config.model)](grown.model)
    shift = class_shift(config, data, parts.train)
    return replace(converted if shift is None else shifted(converted, shift), columns=columns, labels=data.label_names)


def _logits(converted: Converted, inputs: NDArray[Any], rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """Return the graph's logits of these rows of the inputs; None for all."""
    try:
        from importing.model import OnnxModel
    except ImportError as error:
        raise ExportError("ONNX Runtime is needed to check the export: python requirements/install.py cpu") from error

    graph: Graph = converted.graph
    model = OnnxModel(converted.model, converted.library)
    parts = (slice(start, start + 4096) for start in range(0, len(inputs if rows is None else rows), 4096))
    chunks = (inputs[part] if rows is None else inputs[rows[part]] for part in parts)
    logits = [graph.run(model.run, chunk, converted.classes) for chunk in chunks]
    return np.concatenate(logits) if logits else np.empty((0, converted.classes), np.float32)


def _leaves(model: bytes) -> int:
    import onnx

    for node in onnx.load_from_string(model).graph.node:
        for attribute in node.attribute:
            if attribute.name == "target_weights_as_tensor":
                return int(np.prod(attribute.t.dims))
    return 0
