"""CatBoost's `model.cbm`, or its CatBoostClassifier, to ONNX.

CatBoost compares float32 with `>`: the graph takes float32. Each feature has a rule for NaN. Its own ONNX export gives
probabilities as maps; this graph gives log-odds, which stay exact near 0 and 1. That export has no categories; this
graph has those that the model encodes one-hot.

Source: CatBoost, catboost/libs/model/model_export (the JSON of a model); its manual, "Missing values processing".
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle import Column, Columns
from importing.converted import Converted, Feeds, Native
from importing.converters.catboost_categories import check_named, filled, hashes, native_rows, unnamed
from importing.converters.files import read_model
from importing.converters.forest import INPUT, Forest, assemble
from importing.errors import UnsupportedModelError
from importing.libraries import library, named

_LOSSES = ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll")


def convert(source: Path | Any) -> Converted:
    """Convert a classifier of numbers, and of categories that it encodes one-hot.

    Args:
        source: Path of a `.cbm` file, or a `catboost.CatBoostClassifier`.

    Raises:
        UnsupportedModelError: The file is not a CatBoost model, the model is not a classifier, or it has features that
            it turns into numbers by statistics of its own.
    """
    catboost = library("catboost")
    model = _read(catboost, source) if isinstance(source, Path) else source
    _no_texts(model)
    document = _document(model)
    loss = document["model_info"].get("params", {}).get("loss_function", {}).get("type")
    if loss not in _LOSSES:
        raise UnsupportedModelError(
            "the model is not a classifier", found=f"loss function {loss}", expected=", ".join(_LOSSES)
        )
    scale, bias = document["scale_and_bias"]
    names = [str(name) for name in model.feature_names_]
    numbered = all(name == str(place) for place, name in enumerate(names))
    codes = _codes(document, model, numbered=numbered)
    graph = assemble(
        _forest(document, len(bias), scale, codes),
        len(names),
        bias,
        form="margin" if len(bias) == 1 else "logits",
        separate=loss == "MultiClassOneVsAll",
    )

    def native(feeds: Feeds, columns: Mapping[int, Column]) -> NDArray[np.float64]:
        rows = native_rows(feeds[INPUT], columns) if columns else feeds[INPUT]
        found = np.asarray(model.predict(rows, prediction_type="Probability"), np.float64)
        return np.asarray(found / found.sum(1, keepdims=True))

    converted = Converted(
        model=graph[0],
        graph=graph[1],
        classes=max(len(bias), 2),
        columns=None if numbered else Columns(tuple(map(Column, names))),
        labels=tuple(map(str, document["model_info"]["class_params"]["class_names"])) or None,
        library=named(catboost),
        native=partial(native, columns={}),
        trees=graph[2],
    )
    if not codes:
        return converted
    empty = hashes([""])[""]
    own = {place: unnamed(names[place], known, empty) for place, known in codes.items()}
    columns = Columns(tuple(own.get(place, Column(name)) for place, name in enumerate(names)))

    def complete(columns: Columns, texts: Mapping[str, Collection[str]]) -> tuple[Columns, Native]:
        known = hashes(chain(*texts.values()))
        hashed = {name: {text: known[text] for text in own} for name, own in texts.items()}
        full = list(columns.columns)
        check_named({full[place].name: own for place, own in codes.items()}, hashed)
        for place, own in codes.items():
            full[place] = filled(full[place], own, hashed[full[place].name])
        return Columns(tuple(full)), partial(native, columns={place: full[place] for place in codes})

    return replace(converted, columns=columns, complete=complete)


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


def _no_texts(model: Any) -> None:
    names = model.feature_names_
    for kind, places in (
        ("texts", model.get_text_feature_indices()),
        ("embeddings", model.get_embedding_feature_indices()),
    ):
        if places:
            raise UnsupportedModelError(
                f"CatBoost turns {kind} into numbers by statistics of its own, which ONNX cannot hold",
                found=f"{kind} in {', '.join(repr(names[place]) for place in places[:10])}",
                expected="features that are numbers or categories",
                remedy="Train without them, or keep the model where it is and import its scores: candor import scores.",
            )


def _codes(document: dict[str, Any], model: Any, *, numbered: bool) -> dict[int, dict[int, int]]:
    """Return the code of each hash that a split names, by place of its categorical column; in the order of the file.

    Raises:
        UnsupportedModelError: The model turns categories into numbers by statistics of its own, or does not name its
            columns.
    """
    places, names = model.get_cat_feature_indices(), model.feature_names_
    if document["features_info"].get("ctrs"):
        raise UnsupportedModelError(
            "CatBoost turns categories into numbers by statistics of its own (CTR), which ONNX cannot hold",
            found=f"categories in {', '.join(repr(names[place]) for place in places[:10])}",
            expected="categories that are encoded one-hot",
            remedy="Train with one_hot_max_size of at least the largest number of categories of a column (at most "
            "65535), or keep the model where it is and import its scores: candor import scores.",
        )
    if places and numbered:
        raise UnsupportedModelError(
            "the model has categories, and does not name its columns",
            found=f"categories in columns {', '.join(map(str, places[:10]))}",
            expected="names of columns",
            remedy="Train on a data frame, or with feature_names.",
        )
    codes: dict[int, dict[int, int]] = {place: {} for place in places}
    for entry in document["features_info"].get("categorical_features", ()):
        codes[entry["flat_feature_index"]] = {found: code for code, found in enumerate(entry.get("values", ()))}
    return codes


def _document(model: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.json")
        model.save_model(str(file), format="json")
        document: dict[str, Any] = json.loads(file.read_bytes())
    return document


def _forest(document: dict[str, Any], outputs: int, scale: float, codes: Mapping[int, Mapping[int, int]]) -> Forest:
    found = document["features_info"].get("float_features", ())
    categorical = document["features_info"].get("categorical_features", ())
    category = {entry["feature_index"]: entry["flat_feature_index"] for entry in categorical}
    place = {entry["feature_index"]: entry["flat_feature_index"] for entry in found}
    missing = {entry["feature_index"]: entry["nan_value_treatment"] == "AsTrue" for entry in found}
    forest = Forest(np.float32)

    def split(tree: int, node: int, border: dict[str, Any], true: int, false: int, cover: float | None) -> None:
        if border["split_type"] == "OneHotFeature":
            at = category[border["cat_feature_index"]]
            code = codes[at][border["value"]]
            forest.among(tree, node, at, [code], true=true, false=false, missing=False, cover=cover)
            return
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
