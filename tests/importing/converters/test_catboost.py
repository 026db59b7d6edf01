"""CatBoost to ONNX: the graph answers as CatBoost does, on borders and missing values too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catboost
import numpy as np
import pandas as pd
import pytest

from importing.converters.catboost import convert
from importing.errors import UnsupportedModelError
from importing.native import compare
from tests.importing.answers import answer, at_thresholds, features, labels, matrix

QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "iterations": 30, "depth": 4, "random_seed": 3}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nan_mode": "Max"},
        {"boost_from_average": True},
        {"loss_function": "CrossEntropy"},
        {"grow_policy": "Lossguide"},
        {"grow_policy": "Depthwise", "nan_mode": "Max"},
        {"loss_function": "MultiClass"},
        {"loss_function": "MultiClass", "grow_policy": "Lossguide"},
        {"loss_function": "MultiClassOneVsAll"},
    ],
    ids=lambda options: "-".join(map(str, options.values())) or "default",
)
def test_the_file_answers_as_catboost(tmp_path: Path, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    rows = features(rng)
    rows[:, 3] -= 1.7e9  # beyond float32, CatBoost itself cannot tell such values apart
    classes = 3 if "Multi" in options.get("loss_function", "") else 2
    target = labels(rng, rows, classes)
    names = None if options.get("loss_function") == "CrossEntropy" else np.array(["genuine", "fraud", "unclear"])
    estimator = catboost.CatBoostClassifier(**QUIET, **options).fit(rows, target if names is None else names[target])
    estimator.save_model(str(tmp_path / "model.cbm"))
    converted = convert(tmp_path / "model.cbm")
    tried = at_thresholds(converted, np.vstack([rows, rng.choice([np.nan, 0.0, -0.0, 1.0, 2.5], (200, 6))]))
    feeds = matrix(converted, tried)
    check = compare(answer(converted, feeds), converted.native(feeds), tried, library=converted.library)
    assert check.difference < 1e-6
    assert check.library == f"catboost {catboost.__version__}"
    assert converted.labels == (None if names is None else tuple(estimator.classes_))
    assert converted.columns is None


def test_names_of_features_and_object() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(features(rng), columns=["a", "b", "c", "d", "constant", "e"])
    frame["constant"] = 1.0
    estimator = catboost.CatBoostClassifier(**QUIET).fit(frame, labels(rng, frame.to_numpy(), 2))
    converted = convert(estimator)
    assert converted.columns is not None
    assert [column.name for column in converted.columns.columns] == list(frame)
    assert np.allclose(
        answer(converted, matrix(converted, frame.to_numpy())), estimator.predict_proba(frame), atol=1e-6
    )


def test_categories_are_refused_with_what_to_do() -> None:
    frame = pd.DataFrame({"amount": np.arange(100.0), "country": ["at", "de"] * 50})
    estimator = catboost.CatBoostClassifier(**QUIET, cat_features=["country"]).fit(frame, [0, 0, 1, 1] * 25)
    with pytest.raises(UnsupportedModelError, match=r"categories in 'country'.*candor import scores"):
        convert(estimator)


def test_what_does_not_classify_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = features(rng)
    catboost.CatBoostRegressor(**QUIET).fit(rows, labels(rng, rows, 2)).save_model(str(tmp_path / "model.cbm"))
    with pytest.raises(UnsupportedModelError, match=r"not a classifier.*loss function RMSE"):
        convert(tmp_path / "model.cbm")


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.cbm").write_text("tree\n")
    with pytest.raises(UnsupportedModelError, match=r"not a model of CatBoost.*save_model"):
        convert(tmp_path / "model.cbm")
    (tmp_path / "cut.cbm").write_bytes(b"CBM1\x10\x00\x00\x00abc")
    with pytest.raises(UnsupportedModelError, match="CatBoost cannot read"):
        convert(tmp_path / "cut.cbm")
