"""What the trees of a conversion say that each feature contributes: as LightGBM, XGBoost and CatBoost themselves."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import comb
from typing import Any

import catboost
import lightgbm
import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier

from bundle import BundleFormatError, Golden, Trees
from bundle.trees import LEAF, rows_of
from importing.converted import Converted
from importing.converters import catboost as of_catboost
from importing.converters import lightgbm as of_lightgbm
from importing.converters import sklearn as of_sklearn
from importing.converters import xgboost as of_xgboost
from tests.importing.answers import answer, features, labels, matrix

SHOWN = 60


def table(classes: int = 2, seed: int = 1) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    rows = features(rng)
    rows[:, 3] -= 1.7e9
    rows[:, 4] = rng.integers(0, 7, len(rows))
    return rows, labels(rng, rows, classes)


def found_in(converted: Converted, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return contributions and expected scores, (N, S, F + 1), and check that they add up to the graph's logits."""
    assert converted.trees is not None
    trees = Trees.load(converted.trees.dump())
    inputs = matrix(converted, rows)[converted.graph.inputs[0].name]
    given = rows_of(converted.graph, inputs)
    each = np.array([np.vstack([trees.contributions(row), trees.expected]).T for row in given])
    logits = converted.graph.output.logits(each.sum(axis=2), converted.classes)
    golden = answer_logits(converted, rows)
    assert np.abs(logits - golden).max() < 2e-5
    trees.check(converted.graph, Golden(inputs, golden), converted.classes)
    return each


def answer_logits(converted: Converted, rows: NDArray[Any]) -> NDArray[np.float32]:
    probabilities = answer(converted, matrix(converted, rows))
    logits = np.log(np.maximum(probabilities, 1e-300))
    if converted.graph.output.form == "margin":
        logits -= logits[:, :1]
        return logits.astype(np.float32)
    return logits.astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "binary"},
        {"objective": "binary", "zero_as_missing": True, "sigmoid": 2.5},
        {"objective": "binary", "categorical_feature": [4]},
        {"objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
        {"objective": "binary", "min_data_in_leaf": 4000},  # trees of one leaf
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_lightgbm(options: dict[str, Any]) -> None:
    rows, target = table()
    options = dict(options)
    quiet = {"verbosity": -1, "num_leaves": 40, "min_data_in_leaf": 5, "num_threads": 1, "seed": 3}
    categories = options.pop("categorical_feature", "auto")
    booster = lightgbm.train(quiet | options, lightgbm.Dataset(rows, target, categorical_feature=categories), 25)
    tried = np.vstack([rows[:SHOWN], np.full((1, rows.shape[1]), np.nan), np.zeros((1, rows.shape[1]))])
    own = booster.predict(tried, pred_contrib=True) * options.get("sigmoid", 1.0)
    if options.get("boosting") == "rf":  # LightGBM adds its trees up there, and takes their mean for probabilities
        own /= 25
    assert np.abs(found_in(of_lightgbm.convert(booster), tried)[:, 0] - own).max() < 1e-6


def test_lightgbm_of_three_classes() -> None:
    rows, target = table(3)
    quiet = {"verbosity": -1, "num_leaves": 12, "num_threads": 1, "seed": 3}
    booster = lightgbm.train(quiet | {"objective": "multiclass", "num_class": 3}, lightgbm.Dataset(rows, target), 15)
    own = booster.predict(rows[:SHOWN], pred_contrib=True).reshape(SHOWN, 3, -1)
    converted = of_lightgbm.convert(booster)
    assert converted.trees is not None
    mine = np.array([converted.trees.contributions(row).T for row in rows[:SHOWN]])
    assert np.abs(mine - own[..., :-1]).max() < 1e-6
    assert np.abs(converted.trees.expected - own[0, :, -1]).max() < 1e-6


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "binary:logistic"},
        {"objective": "binary:logistic", "booster": "dart", "rate_drop": 0.3},
        {"objective": "multi:softprob", "num_class": 3},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_xgboost(options: dict[str, Any]) -> None:
    classes = options.get("num_class", 2)
    rows, target = table(classes)
    kinds = ["q"] * rows.shape[1]
    kinds[4] = "c"

    def matrix_of(rows: NDArray[Any], target: Any = None) -> xgboost.DMatrix:
        return xgboost.DMatrix(rows.astype(np.float32), target, feature_types=kinds, enable_categorical=True)

    quiet = {"verbosity": 0, "max_depth": 5, "nthread": 1, "seed": 3, "max_cat_to_onehot": 1}
    booster = xgboost.train(quiet | options, matrix_of(rows, target), 12)
    tried = rows[:SHOWN]
    own = booster.predict(matrix_of(tried), pred_contribs=True).reshape(SHOWN, -1, rows.shape[1] + 1)
    converted = of_xgboost.convert(booster)
    assert converted.trees is not None
    given = tried.astype(np.float32).astype(np.float64)
    mine = np.array([np.vstack([converted.trees.contributions(row), converted.trees.expected]).T for row in given])
    # XGBoost adds float32 numbers up.
    assert np.abs(mine - own).max() < 1e-6 * max(1.0, np.abs(own).max())
    assert np.abs(mine.sum(axis=2) - booster.predict(matrix_of(tried), output_margin=True).reshape(SHOWN, -1)).max() < (
        5e-6
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"loss_function": "MultiClass"}],
    ids=lambda options: "-".join(map(str, options.values())) or "default",
)
def test_catboost(options: dict[str, Any]) -> None:
    classes = 3 if "loss_function" in options else 2
    rows, target = table(classes)
    rows = np.nan_to_num(rows)
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "iterations": 15, "depth": 3}
    model = catboost.CatBoostClassifier(**quiet | {"random_seed": 3} | options).fit(rows, target)
    tried = rows[:SHOWN]
    own = model.get_feature_importance(catboost.Pool(tried), type="ShapValues").reshape(SHOWN, -1, rows.shape[1] + 1)
    converted = of_catboost.convert(model)
    assert converted.trees is not None
    given = tried.astype(np.float32).astype(np.float64)
    mine = np.array([np.vstack([converted.trees.contributions(row), converted.trees.expected]).T for row in given])
    assert np.abs(mine - own).max() < 1e-6 * max(1.0, np.abs(own).max())


def expectation(trees: Trees, row: NDArray[Any], known: frozenset[int], node: int) -> float:
    """Return what a tree says of a row of which some features are known, by its definition."""
    if trees.kind[node] == LEAF:
        return float(trees.weights[int(trees.value[node]), 0])
    yes, no = int(trees.yes[node]), int(trees.no[node])
    if int(trees.feature[node]) in known:
        above = row[trees.feature[node]] > trees.value[node]
        return expectation(trees, row, known, yes if above else no)
    parts = [trees.cover[each] * expectation(trees, row, known, each) for each in (yes, no)]
    return float(sum(parts) / trees.cover[node])


def test_trees_of_any_shape_give_shapley_values() -> None:
    """CatBoost's own values for such trees differ where a path asks for a feature twice."""
    rows, target = table()
    rows = np.nan_to_num(rows)[:, [0, 1, 2, 4]]
    settings = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "iterations": 1, "depth": 5}
    model = catboost.CatBoostClassifier(**settings, random_seed=3, grow_policy="Lossguide").fit(rows, target)
    trees = of_catboost.convert(model).trees
    assert trees is not None
    for row in rows[:20].astype(np.float32).astype(np.float64):
        for feature in range(4):
            value, others = 0.0, [each for each in range(4) if each != feature]
            for size in range(4):
                for some in combinations(others, size):
                    without = expectation(trees, row, frozenset(some), 0)
                    gain = expectation(trees, row, frozenset([*some, feature]), 0) - without
                    value += gain / (4 * comb(3, size))
            assert trees.contributions(row)[feature, 0] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("estimator", [HistGradientBoostingClassifier, GradientBoostingClassifier])
def test_boosting_of_scikit_learn_adds_up(estimator: Any) -> None:
    rows, target = table()
    rows = np.nan_to_num(rows)
    settings = {"max_iter": 10} if estimator is HistGradientBoostingClassifier else {"n_estimators": 10}
    found_in(of_sklearn.convert(estimator(**settings, random_state=1).fit(rows, target)), rows[:SHOWN])


def test_a_split_between_missing_and_all_numbers() -> None:
    """scikit-learn's threshold is infinite there, and a stored one must be finite."""
    rng = np.random.default_rng(0)
    rows, target = rng.normal(size=(600, 4)), rng.random(600) < 0.3
    rows[target & (rng.random(600) < 0.7), 1] = np.nan
    model = HistGradientBoostingClassifier(max_iter=10, random_state=1).fit(rows, target)
    assert any(np.isinf(tree.nodes["num_threshold"]).any() for (tree,) in model._predictors)
    rows[:4, 1] = np.finfo(np.float32).max, np.finfo(np.float32).min, np.nan, 0
    found_in(of_sklearn.convert(model), rows[:SHOWN])


def test_probabilities_do_not_add_up_to_log_odds() -> None:
    rows, target = table()
    forest = RandomForestClassifier(5, max_depth=4, random_state=1).fit(np.nan_to_num(rows), target)
    assert of_sklearn.convert(forest).trees is None
    quiet = {"verbosity": -1, "objective": "multiclassova", "num_class": 3, "num_threads": 1}
    assert of_lightgbm.convert(lightgbm.train(quiet, lightgbm.Dataset(*table(3)), 3)).trees is None


def test_trees_are_those_of_the_graph() -> None:
    rows, target = table()
    quiet = {"verbosity": -1, "objective": "binary", "num_threads": 1}
    converted = of_lightgbm.convert(lightgbm.train(quiet, lightgbm.Dataset(rows, target), 5))
    assert converted.trees is not None
    golden = Golden(rows[:4], answer_logits(converted, rows[:4]))
    converted.trees.check(converted.graph, golden, 2)
    with pytest.raises(BundleFormatError, match="differ from the graph"):
        converted.trees.check(converted.graph, Golden(rows[:4], golden.logits + np.float32([0, 1])), 2)
    narrow = converted.graph.inputs[0].model_copy(update={"shape": (2,)})
    graph = converted.graph.model_copy(update={"inputs": (narrow,)})
    with pytest.raises(BundleFormatError, match="features 0 to 1"):
        converted.trees.check(graph, Golden(rows[:4, :2], golden.logits), 2)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("yes", lambda values: values * 0, "leads outside itself"),
        ("no", lambda values: values + 10_000, "leads outside itself"),
        ("cover", lambda values: -values, "not valid"),
        ("weights", lambda values: values * np.nan, "not valid"),
        ("weights", lambda values: values[1:], "not there"),
        ("base", lambda values: np.append(values, 0.0), "base of the trees"),
        ("missing", lambda values: values[1:], "different lengths"),
        ("ends", lambda values: np.append(values, 5), "sets of categories"),
        ("feature", lambda values: values.astype(np.int64), "feature is of type int64"),
    ],
)
def test_damaged_trees_are_refused(name: str, change: Any, message: str) -> None:
    rows, target = table()
    quiet = {"verbosity": -1, "objective": "binary", "num_threads": 1}
    trees = of_lightgbm.convert(lightgbm.train(quiet, lightgbm.Dataset(rows, target), 3)).trees
    assert trees is not None
    with pytest.raises(BundleFormatError, match=message):
        Trees.load(replace(trees, **{name: change(getattr(trees, name))}).dump())
