"""Models that live in the caller's own process: convert them, compare them with themselves, write a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from bundle import Columns
from importing.converted import Converted
from importing.converters import CONVERTERS
from importing.errors import RowsError, UnsupportedModelError
from importing.finish import Options, Source
from importing.labels import CLASSES, check_labels, of_each_label
from importing.model import OnnxModel
from importing.rows.memory import lacks, rows_in_memory
from importing.rows.values import UNKNOWN
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
    labels: Mapping[Any, str] | None,
    label_columns: Sequence[str] | None = None,
    out: str | Path,
    group: Any,
    segment: Any,
    time: Any,
    weight: Any,
    calibrator: str,
    split: Sequence[float],
    seed: int,
    allow_reversed: bool,
) -> Path:
    """Write a bundle of an estimator; see `candor.import_model`."""
    if len(split) != 3:
        raise RowsError("The split is invalid.", where="split", found=str(split), expected="three shares with sum 1")
    first, second, third = split
    shares = (first, second, third)
    options = Options(
        name, None, calibrator, shares, seed, False, Path(out), allow_reversed=allow_reversed, in_python=True
    )
    columns = {"group": group, "segment": segment, "time": time, "weight": weight}
    if label_columns is None:
        return _import_one(estimator, X, y, options, labels, columns)
    if labels is not None:
        raise UnsupportedModelError("labels= belongs to models of one class per row", found=str(labels)[:300])
    names = check_labels(list(label_columns))
    estimators, marks = _one_for_each(estimator, len(names)), _marks(y, len(X), len(names))
    made = of_each_label(options, names)
    paths = []
    for place, (one, own) in enumerate(zip(estimators, made, strict=True)):
        known = np.flatnonzero(marks[:, place] >= 0)
        rows = X.iloc[known] if hasattr(X, "iloc") else np.asarray(X)[known]
        own_columns = {key: None if given is None else np.asarray(given)[known] for key, given in columns.items()}
        paths.append(
            _import_one(one, rows, marks[known, place], own, dict(zip((0, 1), CLASSES, strict=True)), own_columns)
        )
    return paths[0]


def _import_one(
    estimator: Any, X: Any, y: Any, options: Options, labels: Mapping[Any, str] | None, columns: Mapping[str, Any]
) -> Path:
    """Write the bundle of an estimator of one class per row; `columns` are those with a role."""
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "fit"):  # converters say what others lack
        raise UnsupportedModelError(
            "the object gives no probabilities",
            found=type(estimator).__qualname__,
            expected="an estimator with predict_proba",
            remedy="Save a Booster with save_model, and import its file: candor import lightgbm model.txt.",
        )
    form, converted = convert(estimator)
    names = _names(estimator.classes_, labels)
    if labels is not None:
        converted = replace(converted, labels=tuple(names.values()))
    known = converted.columns
    if known is not None and form != "sklearn" and hasattr(X, "columns") and len(X.columns) == len(known):
        # Boosters take columns by their places, and LightGBM changes names with spaces.
        own = zip(known.columns, X.columns, strict=True)
        known = Columns(tuple(replace(column, name=str(title)) for column, title in own))
        converted = replace(converted, columns=known)
    rows = rows_in_memory(
        X,
        [names.get(value, value) for value in _targets(y)],
        names=None if known is None else [column.name for column in known.columns],
        texts=() if known is None else [column.name for column in known.columns if column.literal],
        **columns,
    )
    # The estimator answers on X itself: what is lost on the way into the graph counts as a difference.
    answers = np.asarray(estimator.predict_proba(X), np.float64)
    source = Source(form, type(estimator).__qualname__, None)
    path = import_graph(
        OnnxModel(converted.model, source.name),
        lambda **_: rows,
        options,
        Console(emoji=False),
        source=source,
        converted=converted,
        native=replace(converted, native=lambda _: answers),
    )
    assert path is not None  # noqa: S101 — it is no dry run
    return path


def _one_for_each(estimator: Any, count: int) -> list[Any]:
    """Return the estimator of each label."""
    found = estimator if isinstance(estimator, list | tuple) else getattr(estimator, "estimators_", [])
    if len(found) != count:
        raise UnsupportedModelError(
            "there is not one estimator for each label",
            found=f"{len(found)} estimators, {count} labels",
            expected="a list of fitted classifiers, or MultiOutputClassifier or OneVsRestClassifier",
        )
    return list(found)


def _marks(y: Any, rows: int, count: int) -> NDArray[np.int8]:
    """Return which labels each row has, int8 (N, L): 1, 0, or −1 for unknown; raises RowsError."""
    found = np.asarray(y, object)
    if found.shape != (rows, count):
        raise RowsError("y has another shape.", where="y", found=str(found.shape), expected=f"({rows}, {count})")
    marks = np.empty(found.shape, np.int8)
    for (row, place), value in np.ndenumerate(found):
        unknown = lacks(value)
        if not unknown and value not in (0, 1):
            raise RowsError(
                "A label is neither 0 nor 1.",
                where=f"y, row {row + 1}, column {place + 1}",
                found=str(value)[:100],
                expected="1 (present), 0 (absent), or None or NaN (unknown)",
            )
        marks[row, place] = UNKNOWN if unknown else int(value)
    return marks


def _targets(y: Any) -> list[Any]:
    """Return the class of each row; raises RowsError."""
    found = np.asarray(y, object)
    if found.ndim == 2 and found.shape[1] == 1:  # a data frame of one column
        found = found[:, 0]
    if found.ndim != 1:
        raise RowsError("y has another shape.", where="y", found=str(found.shape), expected="(N,) or (N, 1)")
    return list(found.tolist())


def _names(classes: Any, labels: Mapping[Any, str] | None) -> dict[Any, Any]:
    """Return the name of each class, in order; XGBoost's classes of True and False are 1 and 0.

    Raises:
        UnsupportedModelError: `labels` names other classes, or two classes the same.
    """
    own = np.asarray(classes).tolist()
    if labels is None:
        return {value: value for value in own}
    if not isinstance(labels, Mapping):
        raise UnsupportedModelError(
            "labels is not a mapping",
            found=str(labels)[:300],
            expected=f"a dict with a name for each of {own}, such as {{{own[0]!r}: 'genuine', …}}"[:300],
        )
    named = {name for name in labels.values() if isinstance(name, str) and name}
    if set(labels) != set(own) or len(named) != len(own):
        raise UnsupportedModelError(
            "labels does not name each class of the estimator once",
            found=str(dict(labels))[:300],
            expected=f"a different name for each of {own}"[:300],
        )
    return {value: labels[value] for value in own}
