"""XGBoost to ONNX: the graph answers as XGBoost does, on thresholds, missing values and categories too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost

from importing.converters.xgboost import convert
from importing.errors import UnsupportedModelError
from importing.native import compare
from tests.importing.answers import answer, at_thresholds, features, labels, matrix

QUIET = {"verbosity": 0, "max_depth": 4, "nthread": 1, "seed": 3}


def train(options: dict[str, Any], rows: Any, target: Any, rounds: int = 30, **dataset: Any) -> xgboost.Booster:
    return xgboost.train({**QUIET, **options}, xgboost.DMatrix(rows, target, **dataset), rounds)


@pytest.mark.parametrize("suffix", ["json", "ubj"])
@pytest.mark.parametrize(
    "options",
    [
        {"objective": "binary:logistic"},
        {"objective": "binary:logistic", "base_score": 0.03, "tree_method": "exact"},
        {"objective": "binary:logistic", "booster": "dart", "rate_drop": 0.3},
        {"objective": "binary:logistic", "num_parallel_tree": 3, "subsample": 0.5},
        {"objective": "binary:logitraw"},
        {"objective": "multi:softprob", "num_class": 3},
        {"objective": "multi:softmax", "num_class": 3, "base_score": 0.2},
        {"objective": "multi:softprob", "num_class": 3, "booster": "dart", "rate_drop": 0.3},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_the_file_answers_as_xgboost(tmp_path: Path, options: dict[str, Any], suffix: str) -> None:
    rng = np.random.default_rng(1)
    rows = features(rng)
    rows[:, 3] -= 1.7e9  # beyond float32, XGBoost itself cannot tell such values apart
    file = tmp_path / f"model.{suffix}"
    train(options, rows, labels(rng, rows, options.get("num_class", 2))).save_model(file)
    converted = convert(file)
    tried = at_thresholds(converted, np.vstack([rows, rng.choice([np.nan, 0.0, -0.0, 1.0, 2.5], (200, 6))]))
    feeds = matrix(converted, tried)
    check = compare(answer(converted, feeds), converted.native(feeds), tried, library=converted.library)
    assert check.difference < 5e-6
    assert check.library == f"xgboost {xgboost.__version__}"
    assert converted.columns is None
    assert converted.classes == options.get("num_class", 2)


def test_a_file_with_any_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = features(rng)
    (tmp_path / "model").write_bytes(
        train({"objective": "binary:logistic"}, rows, labels(rng, rows, 2)).save_raw("ubj")
    )
    assert convert(tmp_path / "model").classes == 2


def test_it_answers_with_the_best_iteration() -> None:
    rng = np.random.default_rng(2)
    rows = features(rng)
    target = labels(rng, rows, 2)
    estimator = xgboost.XGBClassifier(n_estimators=200, learning_rate=0.8, early_stopping_rounds=5, **QUIET)
    estimator.fit(rows[:350], target[:350], eval_set=[(rows[350:], target[350:])], verbose=False)
    assert estimator.best_iteration + 1 < estimator.get_booster().num_boosted_rounds()
    converted = convert(estimator)
    found = answer(converted, matrix(converted, rows))
    assert np.allclose(found, estimator.predict_proba(rows), atol=5e-6)
    assert np.allclose(converted.native(matrix(converted, rows)), estimator.predict_proba(rows), atol=1e-7)


def test_another_missing_value() -> None:
    rng = np.random.default_rng(3)
    rows = features(rng)
    rows[np.isnan(rows)] = -999
    estimator = xgboost.XGBClassifier(n_estimators=20, missing=-999, **QUIET).fit(rows, labels(rng, rows, 2))
    converted = convert(estimator)
    found = answer(converted, matrix(converted, rows))
    assert np.allclose(found, estimator.predict_proba(rows), atol=5e-6)


def test_categories_as_whole_numbers() -> None:
    rng = np.random.default_rng(4)
    rows = features(rng)
    rows[:, 1] = rng.choice([0, 1, 2, 7, 40, 90], len(rows))
    rows[::13, 1] = np.nan
    rows[:, 5] = rng.integers(0, 60, len(rows))
    target = (np.isin(rows[:, 1], [0, 7, 90]) ^ np.isin(rows[:, 5] % 3, [0, 2])).astype(int)
    options = {"objective": "binary:logistic", "max_cat_to_onehot": 2}
    kinds = ["float", "c", "float", "float", "float", "c"]
    converted = convert(train(options, rows, target, feature_types=kinds, enable_categorical=True))
    tried = np.vstack([rows] * 3)
    tried[: len(rows), 1] = rng.choice([np.nan, 0.9, 7.5, 41, 1e6], len(rows))
    tried[len(rows) : 2 * len(rows), 5] = rng.choice([np.nan, 59.9, 60, 1e7], len(rows))
    feeds = matrix(converted, tried)
    assert compare(answer(converted, feeds), converted.native(feeds), tried, library="xgboost").difference < 5e-6


def test_categories_of_a_data_frame_enter_with_the_codes_of_columns() -> None:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "amount": np.where(rng.random(500) < 0.1, np.nan, rng.normal(size=500)).astype(np.float32),
            "country": pd.Categorical(rng.choice(["at", "de", "fr", "new zealand"], 500)),
            "code": pd.Categorical(rng.choice([10, 20, 30], 500)),
        }
    )
    frame.loc[::9, "country"] = None
    target = ((frame.country == "fr") ^ (frame.amount > 0.3)).astype(int)
    estimator = xgboost.XGBClassifier(n_estimators=20, enable_categorical=True, **QUIET).fit(frame, target)
    converted = convert(estimator)
    assert converted.labels == ("0", "1")
    assert converted.columns is not None
    assert converted.columns.columns[1].categories == ("at", "de", "fr", "new zealand")
    assert converted.columns.columns[2].categories == ("10", "20", "30")
    encoded = converted.columns.encode(frame.astype(object).to_dict("records"))
    native = estimator.predict_proba(frame)
    assert compare(answer(converted, matrix(converted, encoded)), native, encoded, library="xgboost").difference < 5e-6
    assert np.allclose(converted.native(matrix(converted, encoded)), native, atol=1e-7)


def test_names_that_xgboost_cuts_are_refused() -> None:
    rng = np.random.default_rng(8)
    frame = pd.DataFrame({"country": pd.Categorical(rng.choice(["at", "österreich", "île", "zürich"], 100))})
    estimator = xgboost.XGBClassifier(n_estimators=2, enable_categorical=True, **QUIET)
    with pytest.raises(UnsupportedModelError, match=r"not ASCII.*Found: zürich, île, österre\."):
        convert(estimator.fit(frame, rng.integers(0, 2, 100)))


@pytest.mark.parametrize("objective", ["reg:squarederror", "rank:pairwise", "binary:hinge", "reg:logistic"])
def test_what_does_not_classify_is_refused(objective: str) -> None:
    rng = np.random.default_rng(6)
    rows = features(rng)
    booster = train({"objective": objective}, rows, labels(rng, rows, 2), rounds=2)
    with pytest.raises(UnsupportedModelError, match=f"not a classifier.*objective {objective}"):
        convert(booster)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"booster": "gblinear"}, "gblinear"),
        ({"multi_strategy": "multi_output_tree", "num_class": 3}, "multi_output_tree"),
    ],
)
def test_what_has_no_trees_of_one_output_is_refused(options: dict[str, Any], told: str) -> None:
    rng = np.random.default_rng(7)
    rows = np.nan_to_num(features(rng))
    objective = {"objective": "multi:softprob" if "num_class" in options else "binary:logistic"}
    booster = train({**objective, **options}, rows, labels(rng, rows, options.get("num_class", 2)), rounds=2)
    with pytest.raises(UnsupportedModelError, match=told):
        convert(booster)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("tree\n")
    with pytest.raises(UnsupportedModelError, match=r"not a model of XGBoost.*save_model"):
        convert(tmp_path / "model.json")
    (tmp_path / "cut.json").write_text('{"learner": ')
    with pytest.raises(UnsupportedModelError, match="XGBoost cannot read"):
        convert(tmp_path / "cut.json")
