"""XGBoost: categories are sets, missing values have a side of their own."""

from __future__ import annotations

from typing import Any

from importing.libraries import library
from training.trees.table import SMALL, Grown, OnRound, Table, Task


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
    kinds = ["c" if place in task.categorical else "q" for place in range(rows.inputs.shape[1])]

    def data(table: Table) -> object:
        return xgboost.DMatrix(
            table.inputs.astype("float32"), table.labels, weight=table.weights, feature_types=kinds,
            enable_categorical=True,
        )  # fmt: skip

    losses: list[float] = []

    class Told(callback):  # type: ignore[misc]
        def after_iteration(self, model: object, epoch: int, evals_log: dict[str, dict[str, list[float]]]) -> bool:  # noqa: ARG002
            found = [entry[-1] for metrics in evals_log.values() for entry in metrics.values()]
            losses.extend(map(float, found[:1]))
            on_round(epoch + 1, losses[-1] if found else float("nan"))
            return False

    booster = xgboost.train(
        settings,
        data(rows),
        task.rounds,
        evals=[] if validation is None else [(data(validation), "validation")],
        early_stopping_rounds=None if validation is None else task.patience,
        verbose_eval=False,
        callbacks=[Told()],
    )
    return Grown(booster, booster.best_iteration + 1 if validation is not None else task.rounds, losses, settings)
