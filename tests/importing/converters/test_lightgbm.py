"""LightGBM to ONNX: the graph answers as LightGBM does, on thresholds, missing values, zeros and categories too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest

from importing.converters.lightgbm import convert
from importing.errors import NativeDifferenceError, UnsupportedModelError
from importing.native import compare
from tests.importing.answers import answer, at_thresholds, features, labels, matrix

QUIET = {"verbosity": -1, "num_leaves": 12, "min_data_in_leaf": 5, "num_threads": 1, "seed": 3}


def train(options: dict[str, Any], rows: Any, target: Any, **dataset: Any) -> lightgbm.Booster:
    return lightgbm.train({**QUIET, **options}, lightgbm.Dataset(rows, target, **dataset), 30)


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "binary"},
        {"objective": "binary", "use_missing": False},
        {"objective": "binary", "zero_as_missing": True},
        {"objective": "binary", "sigmoid": 2.5, "is_unbalance": True},
        {"objective": "cross_entropy"},
        {"objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
        {"objective": "binary", "boosting": "dart"},
        {"objective": "multiclass", "num_class": 3},
        {"objective": "multiclassova", "num_class": 3},
        {"objective": "multiclass", "num_class": 3, "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
        {"objective": "binary", "min_data_in_leaf": 400},  # trees of one leaf
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_the_file_answers_as_lightgbm(tmp_path: Path, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    rows = features(rng)
    train(options, rows, labels(rng, rows, options.get("num_class", 2))).save_model(tmp_path / "model.txt")
    converted = convert(tmp_path / "model.txt")
    tried = np.vstack([rows, rng.choice([np.nan, 0.0, -0.0, 1.0, 2.5], (200, 6))])
    if options.get("min_data_in_leaf") != 400:
        tried = at_thresholds(converted, tried)
    feeds = matrix(converted, tried)
    check = compare(answer(converted, feeds), converted.native(feeds), tried, library=converted.library)
    assert check.difference < 1e-6
    assert check.library == f"lightgbm {lightgbm.__version__}"
    assert converted.columns is None
    assert converted.labels is None
    assert [entry.op_type for entry in onnx.load_from_string(converted.model).graph.node].count("ZipMap") == 0


def test_categories_as_whole_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = features(rng)
    rows[:, 1] = rng.choice([0, 1, 2, 7, 40, 900], len(rows))
    rows[:, 5] = rng.integers(0, 60, len(rows))
    target = (np.isin(rows[:, 1], [0, 7, 900]) ^ np.isin(rows[:, 5] % 3, [0, 2])).astype(int)
    options = {"objective": "binary", "min_data_per_group": 5, "cat_smooth": 1, "max_cat_to_onehot": 2}
    booster = train(options, rows, target, categorical_feature=[1, 5])
    booster.save_model(tmp_path / "model.txt")
    converted = convert(tmp_path / "model.txt")
    tried = np.vstack([rows] * 3)
    tried[: len(rows), 1] = rng.choice([np.nan, -1, -0.5, 0.9, 7.5, 41, 1e6, 3e9], len(rows))
    tried[len(rows) : 2 * len(rows), 5] = rng.choice([np.nan, -3, 59.99, 60, 1e9, -0.2], len(rows))
    feeds = matrix(converted, tried)
    assert compare(answer(converted, feeds), converted.native(feeds), tried, library="lightgbm").difference < 1e-6


def test_categories_of_a_data_frame_enter_with_the_codes_of_columns() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "amount": np.where(rng.random(500) < 0.1, np.nan, rng.normal(size=500)).astype(np.float32),
            "country": pd.Categorical(rng.choice(["at", "de", "fr", "us"], 500)),
            "code": pd.Categorical(rng.choice([10, 20, 30], 500)),
        }
    )
    frame.loc[::9, "country"] = None
    target = np.where((frame.country == "fr") ^ (frame.amount > 0.3), "fraud", "genuine")
    estimator = lightgbm.LGBMClassifier(n_estimators=20, **QUIET).fit(frame, target)
    converted = convert(estimator)
    assert converted.labels == ("fraud", "genuine")
    assert converted.columns is not None
    assert converted.columns.columns[1].categories == ("at", "de", "fr", "us")
    assert converted.columns.columns[2].categories == ("10", "20", "30")
    tried = frame.copy()
    tried["country"] = tried["country"].cat.add_categories("xx")
    tried.loc[:50, "country"] = "xx"
    encoded = converted.columns.encode(tried.astype(object).to_dict("records"))
    native = estimator.predict_proba(tried)
    found = answer(converted, matrix(converted, encoded))
    assert compare(found, native, encoded, library="lightgbm").difference < 1e-6
    assert np.allclose(converted.native(matrix(converted, encoded)), native, atol=1e-12)


def test_a_model_that_does_not_say_which_categories_belong_to_which_column_is_refused() -> None:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "size": pd.Categorical(rng.choice(["s", "m"], 300), ordered=True),
            "country": pd.Categorical(rng.choice(["at", "de", "fr"], 300)),
        }
    )
    estimator = lightgbm.LGBMClassifier(n_estimators=3, **QUIET).fit(frame, rng.integers(0, 2, 300))
    with pytest.raises(UnsupportedModelError, match=r"which values belong .* 2 columns, and 1 categorical"):
        convert(estimator)


def test_a_lying_graph_is_caught() -> None:
    rng = np.random.default_rng(5)
    rows = features(rng)
    converted = convert(train({"objective": "binary"}, rows, labels(rng, rows, 2)))
    document = onnx.load_from_string(converted.model)
    (values,) = [
        entry.t for node in document.graph.node for entry in node.attribute if entry.name == "nodes_values_as_tensor"
    ]
    changed = onnx.numpy_helper.to_array(values).copy()
    changed[0] += 0.5
    values.CopyFrom(onnx.numpy_helper.from_array(changed, values.name))
    feeds = matrix(converted, rows)
    found = answer(converted, feeds, document.SerializeToString())
    with pytest.raises(
        NativeDifferenceError, match=r"(?s)lightgbm.* disagree on \d+ of 500 rows.*row \d+\n  values .*708"
    ):
        compare(found, converted.native(feeds), rows, library=converted.library)


@pytest.mark.parametrize("objective", ["regression", "lambdarank", "poisson"])
def test_what_does_not_classify_is_refused(objective: str) -> None:
    rng = np.random.default_rng(6)
    rows = features(rng)
    group = {"group": [100] * 5} if objective == "lambdarank" else {}
    booster = train({"objective": objective}, rows, labels(rng, rows, 2), **group)
    with pytest.raises(UnsupportedModelError, match=f"not a classifier.*objective {objective}"):
        convert(booster)


def test_linear_trees_are_refused() -> None:
    rng = np.random.default_rng(7)
    rows = features(rng)
    booster = train(
        {"objective": "binary", "linear_tree": True}, rows, labels(rng, rows, 2), params={"linear_tree": True}
    )
    with pytest.raises(UnsupportedModelError, match="linear"):
        convert(booster)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("objective=binary\n")
    with pytest.raises(UnsupportedModelError, match=r"not a model of LightGBM.*save_model"):
        convert(tmp_path / "model.txt")
    with pytest.raises(UnsupportedModelError, match="no such file"):
        convert(tmp_path / "absent.txt")
    (tmp_path / "empty.txt").write_text("tree\nversion=v4\nend of trees\n")
    with pytest.raises(UnsupportedModelError, match="LightGBM cannot read"):
        convert(tmp_path / "empty.txt")


def test_a_file_without_its_end_is_refused_before_lightgbm_crashes_on_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"country": pd.Categorical(rng.choice(["at", "de", "fr"], 400)), "amount": rng.random(400)})
    estimator = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(frame, rng.integers(0, 2, 400))
    estimator.booster_.save_model(tmp_path / "whole.txt")
    whole = (tmp_path / "whole.txt").read_bytes()
    assert convert(tmp_path / "whole.txt").columns is not None
    for length in (30, 300, 700, whole.index(b"end of trees"), whole.index(b"end of parameters"), len(whole) - 5):
        (tmp_path / "cut.txt").write_bytes(whole[:length])
        with pytest.raises(UnsupportedModelError, match=r"ends before the model does.*save_model"):
            convert(tmp_path / "cut.txt")
