"""XGBoost: categories are sets, missing values have a side of their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from importing.libraries import library
from training.trees.table import SMALL, Grown, OnRound, Table, Task

_PART = 2**16  # rows read at a time


def fit(rows: Table, validation: Table | None, task: Task, on_round: OnRound) -> Grown:
    """XGBoost: extras `import` and `xgboost`.

    Args:
        rows: The training rows.
        validation: Rows that decide when to stop; None to train all rounds.
        task: What to train.
        on_round: Called after each round.
    """
    xgboost: Any = library("xgboost")
    callback: Any = xgboost.callback.TrainingCallback
    settings = {
        "objective": "binary:logistic" if task.classes == 2 else "multi:softprob",
        "eval_metric": "logloss" if task.classes == 2 else "mlogloss",
        "tree_method": "hist",
        "learning_rate": 0.05,
        "max_depth": 4 if len(rows) < SMALL else 6,
        "colsample_bytree": 0.7,
        "subsample": 0.8,
        "seed": task.seed % 2**31,
        "nthread": task.threads,
        **({} if task.classes == 2 else {"num_class": task.classes}),
        **task.settings,
    }
    if task.settings:
        _check_names(xgboost, settings)
    kinds = ["c" if place in task.categorical else "q" for place in range(rows.columns)]

    class Read(xgboost.DataIter):  # type: ignore[misc]
        """Rows that XGBoost reads in parts and keeps as bins."""

        def __init__(self, table: Table) -> None:
            self._table, self._start = table, 0
            super().__init__()

        def reset(self) -> None:
            self._start = 0

        def next(self, input_data: Callable[..., None]) -> bool:
            if self._start >= len(self._table):
                return False
            part = slice(self._start, self._start + _PART)
            weights = self._table.weights
            input_data(
                data=self._table.inputs(part),
                label=self._table.labels[part],
                weight=None if weights is None else weights[part],
                feature_types=kinds,
            )
            self._start += _PART
            return True

    def data(table: Table, reference: object = None) -> object:
        if settings["tree_method"] != "hist":
            return xgboost.DMatrix(
                table.inputs(), table.labels, weight=table.weights, feature_types=kinds, enable_categorical=True
            )
        bins = settings.get("max_bin", 256)
        return xgboost.QuantileDMatrix(Read(table), ref=reference, enable_categorical=True, max_bin=bins)

    losses: list[float] = []

    class Told(callback):  # type: ignore[misc]
        def after_iteration(self, model: object, epoch: int, evals_log: dict[str, dict[str, list[float]]]) -> bool:  # noqa: ARG002
            found = [entry[-1] for metrics in evals_log.values() for entry in metrics.values()]
            losses.extend(map(float, found[:1]))
            on_round(epoch + 1, losses[-1] if found else float("nan"))
            return False

    first = data(rows)
    booster = xgboost.train(
        settings,
        first,
        task.rounds,
        evals=[] if validation is None else [(data(validation, first), "validation")],
        early_stopping_rounds=None if validation is None else task.patience,
        verbose_eval=False,
        callbacks=[Told()],
    )
    return Grown(booster, booster.best_iteration + 1 if validation is not None else task.rounds, losses, settings)


def _check_names(xgboost: Any, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for parameters that XGBoost does not use: it only warns of them."""
    # An earlier training of this process may have silenced the library for good.
    with warnings.catch_warnings(record=True) as heard, xgboost.config_context(verbosity=1):
        warnings.simplefilter("always")
        xgboost.train({**settings, "verbosity": 1}, xgboost.DMatrix(np.zeros((2, 1)), [0, 1]), 1)
    for text in (str(each.message) for each in heard):
        if "are not used" in text:
            names = text[text.index("{") + 1 : text.index("}")].replace('"', "").strip()
            raise ValueError(f"it does not use the parameter {names}")
