"""A model of the caller's own process, as a bundle. The application does the work, where it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any


def import_model(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    name: str,
    labels: Mapping[Any, str] | None = None,
    label_columns: Sequence[str] | None = None,
    out: str | Path = "var/bundles",
    group: Any = None,
    segment: Any = None,
    time: Any = None,
    weight: Any = None,
    calibrator: str = "auto",
    split: Sequence[float] = (0.5, 0.45, 0.05),
    seed: int = 0,
    allow_reversed: bool = False,
) -> Path:
    """Convert a fitted classifier to ONNX, compare it with itself on X, calibrate it, and write a bundle.

    Args:
        estimator: A classifier or Pipeline of scikit-learn, or a classifier of LightGBM, XGBoost or CatBoost. With
            `label_columns` one for each label: a list of them, or scikit-learn's MultiOutputClassifier or
            OneVsRestClassifier, fitted on a matrix of labels.
        X: Rows as the estimator takes them, unseen in its training: a pandas DataFrame, or an array (N, F).
        y: Class of each row, (N,). With `label_columns` (N, L): 1 (the row has the label), 0, or None or NaN (unknown).
        name: Name of the model in the service.
        labels: New name of each class, such as {0: "genuine", 1: "fraud"}; None to keep the estimator's.
        label_columns: Names of the L labels of a multi-label model; None for a model of one class per row.
        out: Folder of bundles.
        group: Group of each row, (N,), such as a card's: rows that belong together.
        segment: Segment of each row, (N,); each gets certificates of its own.
        time: Time of each row, (N,), UTC.
        weight: Weight of each row, (N,), above 0.
        calibrator: Name of a calibrator, or `auto` to choose one.
        split: Shares of fit, certify and gate rows.
        seed: Seed of the split.
        allow_reversed: Accept classes in an order that the rows clearly contradict, instead of refusing them.

    Returns:
        The bundle's folder; of a multi-label model that of its first label.

    Raises:
        ImportError: The application is not installed.
        importing.errors.ImportRefusedError: The model cannot become ONNX without changing its answers, or the rows
            cannot be used or contradict the order of its classes; nothing was written.
    """
    try:
        importing = import_module("importing.estimators")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"candor.import_model requires the application, of which {error.name} is not installed. "
            "In a checkout of Candor, run: pip install ./library '.[import,cpu]'"
        ) from error
    path: Path = importing.import_model(
        estimator,
        X,
        y,
        name=name,
        labels=labels,
        label_columns=label_columns,
        out=out,
        group=group,
        segment=segment,
        time=time,
        weight=weight,
        calibrator=calibrator,
        split=split,
        seed=seed,
        allow_reversed=allow_reversed,
    )
    return path
