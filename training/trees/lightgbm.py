"""LightGBM: categories are sets, missing values have a side of their own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from importing.libraries import library
from training.trees.table import SMALL, Grown, OnRound, Table, Task


def fit(rows: Table, validation: Table | None, task: Task, on_round: OnRound) -> Grown:
    """LightGBM: extra `import`; the default for tables.

    Args:
        rows: The training rows.
        validation: Rows that decide when to stop; None to train all rounds.
        task: What to train.
        on_round: Called after each round.
    """
    lightgbm: Any = library("lightgbm")
    small = len(rows) < SMALL
    settings = {
        "objective": "binary" if task.classes == 2 else "multiclass",
        "learning_rate": 0.05,
        "num_leaves": 15 if small else 31,
        "feature_fraction": 0.7,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "seed": task.seed % 2**31,
        "num_threads": task.threads,
        "deterministic": True,
        "force_row_wise": True,  # the choice by speed would differ from run to run
        "verbosity": -1,
        **({} if task.classes == 2 else {"num_class": task.classes}),
        **task.settings,
    }

    if task.settings:
        _check_names(lightgbm, settings)

    class Read(lightgbm.Sequence):  # type: ignore[misc]
        """Rows that LightGBM reads a few at a time and keeps as bins."""

        def __init__(self, table: Table) -> None:
            self._table = table

        def __len__(self) -> int:
            return len(self._table)

        def __getitem__(self, rows: Any) -> NDArray[np.float64]:
            return self._table.inputs(rows).astype(np.float64)

    def data(table: Table, reference: object = None) -> object:
        return lightgbm.Dataset(
            Read(table),
            table.labels,
            weight=table.weights,
            categorical_feature=list(task.categorical),
            reference=reference,
            params={"verbosity": -1},
        )

    losses: list[float] = []

    def told(state: Any) -> None:
        found = state.evaluation_result_list
        losses.extend(float(entry[2]) for entry in found[:1])
        on_round(state.iteration + 1, losses[-1] if found else float("nan"))

    first = data(rows)
    stop = lightgbm.early_stopping(task.patience, first_metric_only=True, verbose=False)
    booster = lightgbm.train(
        settings,
        first,
        task.rounds,
        valid_sets=[] if validation is None else [data(validation, first)],
        callbacks=[told] if validation is None else [told, stop],
    )
    return Grown(booster, booster.best_iteration if validation is not None else task.rounds, losses, settings)


def _check_names(lightgbm: Any, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for parameters that LightGBM does not know: it only warns of them."""
    heard: list[str] = []
    lightgbm.register_logger(SimpleNamespace(info=heard.append, warning=heard.append))
    try:
        data = lightgbm.Dataset(np.zeros((2, 1)), [0, 1])
        lightgbm.Booster({**settings, "verbosity": 0}, data)
    finally:  # as LightGBM's own, which it does not give back
        lightgbm.register_logger(SimpleNamespace(info=print, warning=warnings.warn))
    unknown = [text.rpartition("Unknown parameter: ")[2] for text in heard if "Unknown parameter" in text]
    if unknown:
        raise ValueError(f"it does not know the parameter {unknown[0]}")
