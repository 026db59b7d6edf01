"""LightGBM's `model.txt`, or its Booster or LGBMClassifier, to ONNX.

LightGBM compares doubles: the graph takes float64 and keeps every threshold as it is. Missing values follow each
feature's own rule (NaN, zero, or none), and categories are sets of whole numbers.

Source: LightGBM, include/LightGBM/tree.h (NumericalDecision, CategoricalDecision); src/io/tree.cpp (ToJSON).
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import Column, Columns
from importing.converted import Converted, Feeds, coded_columns, of_booster
from importing.converters.files import read_model
from importing.converters.forest import INPUT, Forest, Preparation, assemble
from importing.errors import UnsupportedModelError
from importing.libraries import library, named

_LOWEST = math.nextafter(-1.0, 0.0)  # whole parts are taken towards zero: -0.9 is category 0
_ENDS = (b"\nend of trees", b"\nfeature importances:")  # the second is that of versions before 2.2
_OBJECTIVES = ("binary", "cross_entropy", "multiclass", "multiclassova")


def convert(source: Path | Any) -> Converted:
    """Convert a classifier.

    Args:
        source: Path of `model.txt`, or a `lightgbm.Booster` or `lightgbm.LGBMClassifier`.

    Raises:
        UnsupportedModelError: The file is not a LightGBM model, the model is not a classifier, or ONNX cannot hold it.
    """
    lightgbm = library("lightgbm")
    booster = _read(lightgbm, source) if isinstance(source, Path) else getattr(source, "booster_", source)
    document = booster.dump_model()
    objective, options = _objective(document)
    outputs, features = document["num_tree_per_iteration"], document["max_feature_idx"] + 1
    columns = _columns(document)
    forest, zeros = _forest(document, options.get("sigmoid", 1.0))
    made = assemble(
        forest,
        features,
        [0.0] * outputs,
        form="margin" if outputs == 1 else "logits",
        preparation=Preparation(_LOWEST, zeros),
        separate=objective == "multiclassova",
    )

    def native(feeds: Feeds) -> NDArray[np.float64]:
        found = np.asarray(booster.predict(feeds[INPUT].astype(np.float64)), np.float64)
        both = found if found.ndim == 2 else np.column_stack([1.0 - found, found])
        return np.asarray(both / both.sum(1, keepdims=True))

    return of_booster(made, outputs, columns, source, named(lightgbm), native)


def _read(lightgbm: Any, path: Path) -> Any:
    def load(path: Path) -> Any:
        _check_complete(path)
        try:
            return lightgbm.Booster(model_file=str(path))
        except json.JSONDecodeError as error:  # of its last line, the categories of a data frame
            raise _cut_off(path) from error

    return read_model(
        path,
        "LightGBM",
        load,
        lightgbm.basic.LightGBMError,
        begins=b"tree",
        expected="text that starts with `tree`",
        remedy="Write it with Booster.save_model('model.txt').",
    )


def _check_complete(path: Path) -> None:
    """Refuse a file without its end: LightGBM crashes on half a tree."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        complete = any(content.find(mark) > 0 for mark in _ENDS)
        if content.find(b"\nparameters:") > 0:
            complete &= content.find(b"\nend of parameters") > 0
    if not complete:
        raise _cut_off(path)


def _cut_off(path: Path) -> UnsupportedModelError:
    return UnsupportedModelError(
        "the file ends before the model does",
        where=str(path),
        found=f"{path.stat().st_size:,} bytes",
        remedy="Copy it again, or write it again with Booster.save_model('model.txt').",
    )


def _objective(document: dict[str, Any]) -> tuple[str, dict[str, float]]:
    name, *options = str(document.get("objective") or "none").split()
    if name not in _OBJECTIVES:
        raise UnsupportedModelError(
            "the model is not a classifier",
            found=f"objective {name}",
            expected=", ".join(_OBJECTIVES),
            remedy="If your own formula makes probabilities of its scores, import those: candor import scores.",
        )
    return name, {key: float(value) for key, _, value in (option.partition(":") for option in options) if value}


def _columns(document: dict[str, Any]) -> Columns | None:
    """Return the columns, if they have names."""
    names, ranges, lists = document["feature_names"], document["feature_infos"], document["pandas_categorical"] or []
    places = tuple(place for place, name in enumerate(names) if ranges.get(name, {}).get("values"))
    if not lists:
        numbered = all(name == f"Column_{place}" for place, name in enumerate(names))
        return None if numbered else Columns(tuple(map(Column, names)))
    if len(lists) != len(places):
        raise UnsupportedModelError(
            "the model does not say which values belong to which categorical column",
            found=f"values of {len(lists)} columns, and {len(places)} categorical features",
            expected="as many values as features",
            remedy="Train with feature_pre_filter=False, which keeps columns of rare values; with columns of whole "
            "numbers; or with unordered categories of at least two values.",
        )
    categories = {place: tuple(map(str, values)) for place, values in zip(places, lists, strict=True)}
    return coded_columns(names, categories)


def _forest(document: dict[str, Any], sigmoid: float) -> tuple[Forest, tuple[int, ...]]:
    """Return the trees, and the features of which a zero is a missing value."""
    outputs, trees = document["num_tree_per_iteration"], document["tree_info"]
    scale = sigmoid / (max(len(trees) // outputs, 1) if document["average_output"] else 1)
    forest, zeros = Forest(np.float64), set[int]()
    for tree, entry in enumerate(trees):
        numbers = itertools.count()
        waiting = [(next(numbers), entry["tree_structure"])]
        while waiting:
            number, node = waiting.pop()
            if "split_feature" not in node:
                if "leaf_coeff" in node:
                    raise UnsupportedModelError(
                        "ONNX has no operator for linear trees",
                        found="linear_tree=true",
                        remedy="Train without linear_tree.",
                    )
                cover = node.get("leaf_count", 0)
                forest.leaf(tree, number, [node["leaf_value"] * scale], first=tree % outputs, cover=cover)
                continue
            left, right = next(numbers), next(numbers)
            waiting += [(right, node["right_child"]), (left, node["left_child"])]
            feature, threshold, cover = node["split_feature"], node["threshold"], node["internal_count"]
            if node["decision_type"] == "==":
                among = [int(value) for value in str(threshold).split("||") if value]
                forest.among(tree, number, feature, among, true=left, false=right, missing=False, cover=cover)
                continue
            if node["missing_type"] == "Zero":
                zeros.add(feature)
            # Where a feature had no missing values in training, LightGBM reads NaN as zero.
            missing = threshold >= 0.0 if node["missing_type"] == "None" else node["default_left"]
            forest.split(
                tree, number, feature, "BRANCH_LEQ", threshold, true=left, false=right, missing=missing, cover=cover
            )
    return forest, tuple(sorted(zeros))
