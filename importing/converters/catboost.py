"""CatBoost's `model.cbm`, or its CatBoostClassifier, to ONNX.

CatBoost compares float32 with `>`: the graph takes float32. Each feature has a rule for NaN. Its own ONNX export gives
probabilities as maps; this graph gives log-odds, which stay exact near 0 and 1.

Source: CatBoost, catboost/libs/model/model_export (the JSON of a model); its manual, "Missing values processing".
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import Column, Columns
from importing.converted import Converted, Feeds
from importing.converters.files import read_model
from importing.converters.forest import INPUT, Forest, assemble
from importing.errors import UnsupportedModelError
from importing.libraries import library, named

_LOSSES = ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll")


def convert(source: Path | Any) -> Converted:
    """Convert a classifier of numbers.

    Args:
        source: Path of a `.cbm` file, or a `catboost.CatBoostClassifier`.

    Raises:
        UnsupportedModelError: The file is not a CatBoost model, the model is not a classifier, or it has features that
            are not numbers.
    """
    catboost = library("catboost")
    model = _read(catboost, source) if isinstance(source, Path) else source
    _numbers_only(model)
    document = _document(model)
    loss = document["model_info"].get("params", {}).get("loss_function", {}).get("type")
    if loss not in _LOSSES:
        raise UnsupportedModelError(
            "the model is not a classifier", found=f"loss function {loss}", expected=", ".join(_LOSSES)
        )
    scale, bias = document["scale_and_bias"]
    names = [str(name) for name in model.feature_names_]
    numbered = all(name == str(place) for place, name in enumerate(names))
    graph = assemble(
        _forest(document, len(bias), scale),
        len(names),
        bias,
        form="margin" if len(bias) == 1 else "logits",
        separate=loss == "MultiClassOneVsAll",
    )

    def native(feeds: Feeds) -> NDArray[np.float64]:
        found = np.asarray(model.predict(feeds[INPUT], prediction_type="Probability"), np.float64)
        return np.asarray(found / found.sum(1, keepdims=True))

    return Converted(
        model=graph[0],
        graph=graph[1],
        classes=max(len(bias), 2),
        columns=None if numbered else Columns(tuple(map(Column, names))),
        labels=tuple(map(str, document["model_info"]["class_params"]["class_names"])) or None,
        library=named(catboost),
        native=native,
        trees=graph[2],
    )


def _read(catboost: Any, path: Path) -> Any:
    return read_model(
        path,
        "CatBoost",
        lambda path: catboost.CatBoostClassifier().load_model(str(path)),
        catboost.CatBoostError,
        begins=b"CBM1",
        expected="a file that starts with `CBM1`",
        remedy="Write it with CatBoostClassifier.save_model('model.cbm').",
    )


def _numbers_only(model: Any) -> None:
    names = model.feature_names_
    for kind, places in (
        ("categories", model.get_cat_feature_indices()),
        ("texts", model.get_text_feature_indices()),
        ("embeddings", model.get_embedding_feature_indices()),
    ):
        if places:
            raise UnsupportedModelError(
                f"CatBoost turns {kind} into numbers by statistics of its own, which ONNX cannot hold",
                found=f"{kind} in {', '.join(repr(names[place]) for place in places[:10])}",
                expected="features that are numbers",
                remedy="Train on numbers (one column per category, or codes), or keep the model where it is and import "
                "its scores: candor import scores.",
            )


def _document(model: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.json")
        model.save_model(str(file), format="json")
        document: dict[str, Any] = json.loads(file.read_bytes())
    return document


def _forest(document: dict[str, Any], outputs: int, scale: float) -> Forest:
    found = document["features_info"]["float_features"]
    place = {entry["feature_index"]: entry["flat_feature_index"] for entry in found}
    missing = {entry["feature_index"]: entry["nan_value_treatment"] == "AsTrue" for entry in found}
    forest = Forest(np.float32)

    def split(tree: int, node: int, border: dict[str, Any], true: int, false: int, cover: float | None) -> None:
        feature = border["float_feature_index"]
        forest.split(
            tree,
            node,
            place[feature],
            "BRANCH_GT",
            border["border"],
            true=true,
            false=false,
            missing=missing[feature],
            cover=cover,
        )

    for tree, entry in enumerate(document.get("oblivious_trees", ())):
        splits = entry["splits"]
        inner = 2 ** len(splits) - 1
        covers = _covers(entry.get("leaf_weights"), inner + 1)
        for node in range(inner):
            level = (node + 1).bit_length() - 1
            split(tree, node, splits[-1 - level], 2 * node + 2, 2 * node + 1, covers[node])
        values = np.array(entry["leaf_values"]).reshape(-1, outputs) * scale
        for leaf in range(inner + 1):  # the first split is the lowest bit of its number
            forest.leaf(tree, inner + leaf, values[leaf].tolist(), cover=covers[inner + leaf])
    for tree, entry in enumerate(document.get("trees", ())):
        numbers = itertools.count()
        waiting = [(next(numbers), entry)]
        while waiting:
            number, node = waiting.pop()
            if "split" not in node:
                forest.leaf(tree, number, (np.atleast_1d(node["value"]) * scale).tolist(), cover=node.get("weight"))
                continue
            left, right = next(numbers), next(numbers)
            waiting += [(right, node["right"]), (left, node["left"])]
            split(tree, number, node["split"], right, left, _weight(node))
    return forest


def _covers(weights: list[float] | None, leaves: int) -> list[float | None]:
    """Return the weight of the training rows that reached each node of an oblivious tree, in the order of its nodes."""
    if weights is None or len(weights) != leaves:
        return [None] * (2 * leaves - 1)
    covers = [0.0] * (leaves - 1) + [float(weight) for weight in weights]
    for node in range(leaves - 2, -1, -1):
        covers[node] = covers[2 * node + 1] + covers[2 * node + 2]
    return list(covers)


def _weight(node: dict[str, Any]) -> float | None:
    """Return the weight of the training rows that reached a node; None if a leaf below it does not tell."""
    waiting, total = [node], 0.0
    while waiting:
        each = waiting.pop()
        if "split" in each:
            waiting += [each["left"], each["right"]]
        elif "weight" not in each:
            return None
        else:
            total += each["weight"]
    return total
