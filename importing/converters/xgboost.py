"""XGBoost's `model.json` or `model.ubj`, or its Booster or XGBClassifier, to ONNX.

XGBoost compares float32: the graph takes float32. A model that stopped early answers with its best iteration, as
XGBClassifier does. A base margin that was given beside the rows is not part of a model, so no graph can hold it.

Source: XGBoost, doc/model.schema; src/tree/model, src/common/categorical.h (Decision).
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

from bundle import Columns
from importing.converted import Converted, Feeds, coded_columns, of_booster
from importing.converters.files import read_model
from importing.converters.forest import INPUT, Forest, Preparation, assemble
from importing.errors import UnsupportedModelError
from importing.libraries import library, named

_OBJECTIVES = ("binary:logistic", "binary:logitraw", "multi:softprob", "multi:softmax")


def convert(source: Path | Any) -> Converted:
    """Convert a classifier.

    Args:
        source: Path of a `.json` or `.ubj` file, or an `xgboost.Booster` or `xgboost.XGBClassifier`.

    Raises:
        UnsupportedModelError: The file is not an XGBoost model, the model is not a classifier, or ONNX cannot hold it.
    """
    xgboost = library("xgboost")
    booster = _read(xgboost, source) if isinstance(source, Path) else _booster(source)
    learner = json.loads(booster.save_raw("json"))["learner"]
    objective = learner["objective"]["name"]
    if objective not in _OBJECTIVES:
        raise UnsupportedModelError(
            "the model is not a classifier", found=f"objective {objective}", expected=", ".join(_OBJECTIVES)
        )
    parameters = learner["learner_model_param"]
    outputs, features = max(int(parameters["num_class"]), 1), int(parameters["num_feature"])
    rounds = _rounds(booster)
    columns, preparation = _features(learner, getattr(source, "missing", math.nan))
    made = assemble(
        _forest(learner, outputs, rounds),
        features,
        _base(objective, parameters["base_score"], outputs),
        form="margin" if outputs == 1 else "logits",
        preparation=preparation,
    )

    def native(feeds: Feeds) -> NDArray[np.float64]:
        rows = xgboost.DMatrix(
            feeds[INPUT].astype(np.float32),
            missing=math.nan if preparation.missing is None else preparation.missing,
            feature_names=booster.feature_names,
            feature_types=booster.feature_types,
            enable_categorical=True,
        )
        margins = objective in ("binary:logitraw", "multi:softmax")
        found = booster.predict(rows, output_margin=margins, iteration_range=(0, rounds or 0)).astype(np.float64)
        if outputs > 1:
            return np.asarray(softmax(found, axis=1) if margins else found)
        positive = expit(found) if margins else found
        return np.column_stack([1.0 - positive, positive])

    return of_booster(made, outputs, columns, source, named(xgboost), native)


def _booster(source: Any) -> Any:
    return source.get_booster() if hasattr(source, "get_booster") else source


def _read(xgboost: Any, path: Path) -> Any:
    return read_model(
        path,
        "XGBoost",
        # The bytes themselves: XGBoost guesses the format of a file by its name.
        lambda path: xgboost.Booster(model_file=bytearray(path.read_bytes())),
        xgboost.core.XGBoostError,
        begins=b"{",
        expected="JSON or UBJSON",
        remedy="Write it with save_model('model.json') or save_model('model.ubj').",
    )


def _rounds(booster: Any) -> int | None:
    best = booster.attr("best_iteration")
    return None if best is None else int(best) + 1


def _base(objective: str, text: str, outputs: int) -> list[float]:
    scores = [float(value) for value in text.strip("[]").split(",")]
    if objective == "binary:logistic":
        return [float(logit(scores[0]))]
    return scores if len(scores) == outputs else scores * outputs


def _features(learner: dict[str, Any], missing: float) -> tuple[Columns | None, Preparation]:
    names = learner["feature_names"]
    lists = _gradient_booster(learner)["model"].get("cats", {}).get("enc", [])
    categories = {place: _categories(entry) for place, entry in enumerate(lists) if entry.get("values")}
    preparation = Preparation(missing=None if math.isnan(missing) else float(missing))
    return coded_columns(names, categories) if names else None, preparation


def _categories(entry: dict[str, Any]) -> tuple[str, ...]:
    values = entry["values"]
    if "offsets" not in entry:
        return tuple(map(str, values))
    text = bytes(value & 0xFF for value in values).decode(errors="replace")
    names = tuple(text[first:last] for first, last in itertools.pairwise(entry["offsets"]))
    if not text.isascii():  # XGBoost 3.2 counts characters where it stores bytes, and loses the ends
        raise UnsupportedModelError(
            "XGBoost cuts the names of categories that are not ASCII",
            found=", ".join(name for name in names if not name.isascii())[:200],
            remedy="Train with ASCII names, or with columns of whole numbers.",
        )
    return names


def _gradient_booster(learner: dict[str, Any]) -> dict[str, Any]:
    """Return what holds the trees; `dart` keeps it one level deeper."""
    booster: dict[str, Any] = learner["gradient_booster"]
    if booster["name"] not in ("gbtree", "dart"):
        raise UnsupportedModelError(
            "the model has no trees", found=f"booster {booster['name']}", expected="gbtree or dart"
        )
    inside: dict[str, Any] = booster.get("gbtree", booster)
    return inside


def _forest(learner: dict[str, Any], outputs: int, rounds: int | None) -> Forest:
    part = _gradient_booster(learner)
    trees, targets = part["model"]["trees"], part["model"]["tree_info"]
    # XGBoost 3.4 keeps the weights of dropped-out trees beside the trees.
    dropout = part["model"].get("weight_drop") or learner["gradient_booster"].get("weight_drop")
    weights = dropout or [1.0] * len(trees)
    if rounds is not None:
        trees = trees[: part["model"]["iteration_indptr"][rounds]]
    forest = Forest(np.float32)
    for number, tree in enumerate(trees):
        if int(tree["tree_param"]["size_leaf_vector"]) > 1:
            raise UnsupportedModelError(
                "a leaf of the model has a vector of values",
                found="multi_strategy=multi_output_tree",
                remedy="Train with multi_strategy=one_output_per_tree.",
            )
        _tree(forest, number, tree, targets[number] if outputs > 1 else 0, weights[number])
    return forest


def _tree(forest: Forest, number: int, tree: dict[str, Any], target: int, weight: float) -> None:
    left, right, missing = tree["left_children"], tree["right_children"], tree["default_left"]
    segments = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    sets = {node: tree["categories"][first : first + size] for node, first, size in segments}
    waiting = [0]
    while waiting:
        node = waiting.pop()
        value, cover = tree["split_conditions"][node], tree["sum_hessian"][node]
        if left[node] == -1:
            forest.leaf(number, node, [value * weight], first=target, cover=cover)
            continue
        waiting += [right[node], left[node]]
        feature, tracks_left = tree["split_indices"][node], bool(missing[node])
        if node in sets:  # those of the set go right
            forest.among(
                number,
                node,
                feature,
                sets[node],
                true=right[node],
                false=left[node],
                missing=not tracks_left,
                cover=cover,
            )
        else:
            forest.split(
                number,
                node,
                feature,
                "BRANCH_LT",
                value,
                true=left[node],
                false=right[node],
                missing=tracks_left,
                cover=cover,
            )
