"""CatBoost, on numbers: ONNX cannot hold its own statistics of categories, so these are ordered."""

from __future__ import annotations

from typing import Any

from importing.libraries import library
from training.trees.table import Grown, OnRound, Table, Task


def fit(rows: Table, validation: Table | None, task: Task, on_round: OnRound) -> Grown:
    """CatBoost: extras `import` and `catboost`; categories are ordered by the rate of the rarest class.

    Args:
        rows: The training rows.
        validation: Rows that decide when to stop; None to train all rounds.
        task: What to train.
        on_round: Called after each round.
    """
    catboost = library("catboost")
    settings = {
        "loss_function": "Logloss" if task.classes == 2 else "MultiClass",
        "learning_rate": 0.05,
        "depth": 6,
        "random_seed": task.seed % 2**31,
        "thread_count": task.threads,
        "allow_writing_files": False,
        "logging_level": "Silent",
        **task.settings,
        "iterations": task.rounds,
    }
    losses: list[float] = []

    class Told:
        def after_iteration(self, info: Any) -> bool:
            found = [values[-1] for values in (info.metrics or {}).get("validation", {}).values()]
            losses.extend(map(float, found[:1]))
            on_round(info.iteration, losses[-1] if found else float("nan"))
            return True

    def pool(table: Table) -> Any:
        return catboost.Pool(table.inputs(), table.labels, weight=table.weights)

    model = catboost.CatBoostClassifier(**settings)
    model.fit(
        pool(rows),
        eval_set=None if validation is None else pool(validation),
        early_stopping_rounds=None if validation is None else task.patience,
        use_best_model=validation is not None,
        callbacks=[Told()],
    )
    return Grown(model, model.tree_count_, losses, settings)
