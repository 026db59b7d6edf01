"""Models that live in the caller's own process: convert them, compare them with themselves, write a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bundle import Columns
from importing.converted import Converted
from importing.converters import CONVERTERS
from importing.errors import RowsError, UnsupportedModelError
from importing.finish import Options, Source
from importing.model import OnnxModel
from importing.rows.memory import rows_in_memory
from importing.steps import import_graph


def convert(estimator: Any) -> tuple[str, Converted]:
    """Convert a fitted classifier.

    Args:
        estimator: A classifier or Pipeline of scikit-learn, or a classifier of LightGBM, XGBoost or CatBoost.

    Returns:
        Key of `CONVERTERS`, and the model as ONNX.

    Raises:
        UnsupportedModelError: No converter knows the object, or it cannot become ONNX.
    """
    for kind in type(estimator).__mro__:
        found = kind.__module__.partition(".")[0]
        if found in CONVERTERS:
            return found, CONVERTERS[found](estimator)
    raise UnsupportedModelError(
        "no converter knows this object",
        found=f"{type(estimator).__module__}.{type(estimator).__qualname__}",
        expected="a fitted classifier of scikit-learn, LightGBM, XGBoost or CatBoost",
    )


def import_model(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    name: str,
    out: str | Path,
    group: Any,
    segment: Any,
    time: Any,
    weight: Any,
    calibrator: str,
    split: Sequence[float],
    seed: int,
) -> Path:
    """Write a bundle of an estimator; see `candor.import_model`."""
    if len(split) != 3:
        raise RowsError("The split is invalid.", where="split", found=str(split), expected="three shares with sum 1")
    first, second, third = split
    shares = (first, second, third)
    options = Options(name, None, calibrator, shares, seed, dry_run=False, out=Path(out), allow_reversed=True)
    if not hasattr(estimator, "predict_proba"):
        raise UnsupportedModelError(
            "the object gives no probabilities",
            found=type(estimator).__qualname__,
            expected="an estimator with predict_proba",
            remedy="Save a Booster with save_model, and import its file: candor import lightgbm model.txt.",
        )
    form, converted = convert(estimator)
    known = converted.columns
    if known is not None and form != "sklearn" and hasattr(X, "columns") and len(X.columns) == len(known):
        # Boosters take columns by their places, and LightGBM changes names with spaces.
        own = zip(known.columns, X.columns, strict=True)
        known = Columns(tuple(replace(column, name=str(title)) for column, title in own))
        converted = replace(converted, columns=known)
    rows = rows_in_memory(
        X,
        _as_classes(y, estimator.classes_),
        names=None if known is None else [column.name for column in known.columns],
        group=group,
        segment=segment,
        time=time,
        weight=weight,
    )
    # The estimator answers on X itself: what is lost on the way into the graph counts as a difference.
    answers = np.asarray(estimator.predict_proba(X), np.float64)
    source = Source(form, type(estimator).__qualname__, None)
    path = import_graph(
        OnnxModel(converted.model, source.name),
        lambda **_: rows,
        options,
        Console(),
        source=source,
        converted=converted,
        native=replace(converted, native=lambda _: answers),
    )
    assert path is not None  # noqa: S101 — it is no dry run
    return path


def _as_classes(y: Any, classes: Any) -> list[Any]:
    """Return labels as the estimator writes them: XGBoost's classes of True and False are 1 and 0."""
    own = {value: value for value in np.asarray(classes).tolist()}
    return [own.get(value, value) for value in np.asarray(y).tolist()]
