"""scikit-learn's histogram gradient boosting: categories are sets up to 255 values, missing values have a side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from importing.libraries import library
from training.trees.table import SMALL, Grown, OnRound, Table, Task

MOST_CATEGORIES = 255


def fit(rows: Table, validation: Table | None, task: Task, on_round: OnRound) -> Grown:
    """scikit-learn's histogram gradient boosting, which training requires anyway.

    Columns of more than 255 categories are numbers, ordered by the rate of the rarest class.

    Args:
        rows: The training rows.
        validation: Rows that decide when to stop; None to train all rounds.
        task: What to train.
        on_round: Called once, after the last round: scikit-learn does not tell its rounds.
    """
    ensemble, threads = library("sklearn.ensemble"), library("threadpoolctl")
    small = len(rows) < SMALL
    settings: dict[str, Any] = {
        "learning_rate": 0.05,
        "max_leaf_nodes": 15 if small else 31,
        "max_features": 0.7,
        "random_state": task.seed % 2**31,
        **task.settings,
        "max_iter": task.rounds,
    }
    inputs = rows.inputs().astype(np.float64)
    inputs[:, np.isnan(inputs).all(axis=0)] = 0.0  # scikit-learn cannot bin an empty column, and never splits this
    sets = [place for place in task.categorical if np.nanmax(inputs[:, place], initial=0) < MOST_CATEGORIES]
    model = ensemble.HistGradientBoostingClassifier(
        **settings,
        categorical_features=sets or None,
        early_stopping=validation is not None,
        n_iter_no_change=task.patience,
        scoring="loss",
    )
    against = {}
    if validation is not None:
        against = {
            "X_val": validation.inputs().astype(np.float64),
            "y_val": validation.labels,
            "sample_weight_val": validation.weights,
        }
    with threads.threadpool_limits(task.threads, user_api="openmp"):
        model.fit(inputs, rows.labels, sample_weight=rows.weights, **against)
    if validation is None:
        on_round(task.rounds, math.nan)
        return Grown(model, task.rounds, [], settings)
    losses = (-model.validation_score_).tolist()[1:]  # the first is that of no trees
    best = max(1, int(np.argmin(losses)) + 1)
    del model._predictors[best:]  # noqa: SLF001 — it keeps the rounds after the best one
    on_round(len(losses), losses[-1])
    return Grown(model, best, losses, settings)
