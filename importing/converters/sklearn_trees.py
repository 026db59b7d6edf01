"""Trees of scikit-learn, as the graph of their own that keeps their precision.

A tree compares float32 features with float64 thresholds; a threshold becomes the largest float32 that is not above it,
so that every comparison has the same result. Histogram gradient boosting compares float64.

Source: scikit-learn, sklearn/tree/_tree.pyx (_apply_dense), sklearn/ensemble/_hist_gradient_boosting/_predictor.pyx.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle.graph import Form
from importing.converters.forest import Forest
from importing.errors import UnsafeFileError, UnsupportedModelError

_AVERAGED = ("DecisionTreeClassifier", "ExtraTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier")
_BOOSTED, _HISTOGRAMS = "GradientBoostingClassifier", "HistGradientBoostingClassifier"


def forest(estimator: Any) -> tuple[Forest, list[float], Form] | None:
    """Return a model's trees, the scores that they are added to, and what the scores are; None if it has no trees.

    Raises:
        UnsupportedModelError: Its trees are of a kind that ONNX cannot hold.
    """
    name = type(estimator).__name__
    if not type(estimator).__module__.startswith("sklearn."):
        return None
    if name in _AVERAGED:
        return _averaged(estimator)
    if name == _BOOSTED:
        return _boosted(estimator)
    return _histograms(estimator) if name == _HISTOGRAMS else None


def check(model: Any) -> None:
    """Check all trees of a file's model, before the library walks them without looking.

    Args:
        model: An estimator, or what one holds.

    Raises:
        UnsafeFileError: A tree leads outside itself, or to a feature that a row does not have.
    """
    for found in parts(model):
        sound = all(_sound(tree, found.n_features_in_) for tree in _trees_of(found))
        # An ensemble hands rows to its trees without a look at their number of columns.
        members: Any = [] if hasattr(found, "estimators_features_") else np.ravel(getattr(found, "estimators_", []))
        wide = [each for each in members if hasattr(each, "tree_") and each.n_features_in_ != found.n_features_in_]
        if wide or not sound:
            raise UnsafeFileError("a tree in the file is damaged: it leads outside itself, or outside a row")


def parts(model: Any) -> Iterator[Any]:
    """Yield a model and every object in it, each once."""
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, list | tuple):
            waiting += found
        elif isinstance(found, np.ndarray) and found.dtype.hasobject:
            waiting += found.ravel().tolist()
        elif hasattr(found, "__dict__") and not isinstance(found, type):
            waiting += vars(found).values()
            yield found


def _trees_of(found: Any) -> list[Any]:
    if hasattr(found, "_predictors"):
        return [tree for members in found._predictors for tree in members]  # noqa: SLF001 — no public name
    return [found.tree_] if hasattr(found, "tree_") and hasattr(found.tree_, "children_left") else []


def _sound(tree: Any, features: int) -> bool:
    if hasattr(tree, "nodes"):
        nodes = tree.nodes
        if (nodes["bitset_idx"][nodes["is_categorical"] != 0] >= len(tree.raw_left_cat_bitsets)).any():
            return False
        inner, left, right, feature = nodes["is_leaf"] == 0, nodes["left"], nodes["right"], nodes["feature_idx"]
    else:
        left, right, feature = tree.children_left, tree.children_right, tree.feature
        inner = left != -1
    # The library numbers every node after its parent: then no walk can go on for ever.
    parents, last = np.flatnonzero(inner), len(left)
    forward = [(child[inner] > parents) & (child[inner] < last) for child in (left, right)]
    return bool(np.all(forward) and (feature[inner] >= 0).all() and (feature[inner] < features).all())


def _averaged(estimator: Any) -> tuple[Forest, list[float], Form]:
    trees = [member.tree_ for member in getattr(estimator, "estimators_", [estimator])]
    if trees[0].n_outputs != 1:
        raise UnsupportedModelError("the model has several targets", found=str(trees[0].n_outputs), expected="one")
    made = Forest(np.float32)
    for number, tree in enumerate(trees):
        shares = tree.value[:, 0, :]
        _tree(made, number, tree, shares / shares.sum(1, keepdims=True) / len(trees))
    return made, [0.0] * len(estimator.classes_), "probabilities"


def _boosted(estimator: Any) -> tuple[Forest, list[float], Form]:
    if estimator.init_ != "zero" and type(estimator.init_).__name__ != "DummyClassifier":
        raise UnsupportedModelError(
            "the boosting starts from another model", found=type(estimator.init_).__name__, remedy="Train without init."
        )
    factor = 2.0 if estimator.loss == "exponential" else 1.0
    outputs = estimator.estimators_.shape[1]
    start = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_)))[0]  # noqa: SLF001 — no public name
    made = Forest(np.float32)
    for number, member in enumerate(estimator.estimators_.ravel()):
        weights = member.tree_.value[:, 0, :] * estimator.learning_rate * factor
        _tree(made, number, member.tree_, weights, first=number % outputs)
    return made, [float(score) * factor for score in start], "margin" if outputs == 1 else "logits"


def _histograms(estimator: Any) -> tuple[Forest, list[float], Form]:
    places = _places(estimator)
    made = Forest(np.float64)
    start = np.atleast_2d(estimator._baseline_prediction)[0]  # noqa: SLF001 — no public name
    for number, tree in enumerate(tree for members in estimator._predictors for tree in members):  # noqa: SLF001
        nodes = tree.nodes
        for place, node in enumerate(nodes):
            cover = float(node["count"])
            if node["is_leaf"]:
                made.leaf(number, place, [float(node["value"])], first=number % len(start), cover=cover)
                continue
            feature = places[int(node["feature_idx"])]
            left, right, missing = int(node["left"]), int(node["right"]), bool(node["missing_go_to_left"])
            if node["is_categorical"]:
                words = tree.raw_left_cat_bitsets[int(node["bitset_idx"])]
                among = np.flatnonzero(np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little"))
                made.among(number, place, feature, among.tolist(), true=left, false=right, missing=missing, cover=cover)
            else:
                threshold = float(node["num_threshold"])
                made.split(
                    number,
                    place,
                    feature,
                    "BRANCH_LEQ",
                    threshold,
                    true=left,
                    false=right,
                    missing=missing,
                    cover=cover,
                )
    return made, [float(score) for score in start], "margin" if len(start) == 1 else "logits"


def _places(estimator: Any) -> list[int]:
    """Return the column of each feature: histogram gradient boosting puts its categories first.

    Raises:
        UnsupportedModelError: Categories are not the numbers 0, 1, 2 …: then it renumbers them.
    """
    if estimator.is_categorical_ is None or not any(estimator.is_categorical_):
        return list(range(estimator.n_features_in_))
    (_, encoder, categorical), *_ = estimator._preprocessor.transformers_  # noqa: SLF001 — no public name
    chosen = np.zeros(estimator.n_features_in_, np.bool_)
    chosen[categorical] = True
    for values in encoder.categories_:
        known = np.asarray(values)
        numbers = known[~np.isnan(known)] if known.dtype.kind == "f" else None
        if numbers is None or not np.array_equal(numbers, np.arange(len(numbers))):
            raise UnsupportedModelError(
                "histogram gradient boosting keeps categories in a form of its own",
                found=", ".join(map(str, known[:10].tolist())),
                expected="categories that are the numbers 0, 1, 2 …",
                remedy="Train it on such numbers, or without categorical_features after an OrdinalEncoder.",
            )
    return [*np.flatnonzero(chosen).tolist(), *np.flatnonzero(~chosen).tolist()]


def _tree(made: Forest, number: int, tree: Any, weights: NDArray[np.float64], first: int = 0) -> None:
    thresholds = _downwards(tree.threshold)
    left, right = tree.children_left.tolist(), tree.children_right.tolist()
    covers = tree.weighted_n_node_samples.tolist()
    for place, feature in enumerate(tree.feature.tolist()):
        if left[place] == -1:
            made.leaf(number, place, weights[place].tolist(), first=first, cover=covers[place])
        else:
            made.split(
                number,
                place,
                feature,
                "BRANCH_LEQ",
                thresholds[place],
                true=left[place],
                false=right[place],
                missing=bool(tree.missing_go_to_left[place]),
                cover=covers[place],
            )


def _downwards(thresholds: NDArray[np.float64]) -> list[float]:
    rounded = thresholds.astype(np.float32)
    above = rounded.astype(np.float64) > thresholds
    rounded[above] = np.nextafter(rounded[above], np.float32(-np.inf))
    return [float(value) for value in rounded]
