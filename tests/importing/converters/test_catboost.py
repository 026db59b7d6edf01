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


def categories(rng: np.random.Generator, rows: int = 600) -> tuple[pd.DataFrame, np.ndarray]:
    """Return columns of CatBoost: numbers, texts (some empty, NA and not ASCII), and whole numbers as categories."""
    frame = pd.DataFrame(
        {
            "amount": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)).astype(np.float32),
            "country": rng.choice(["at", "de", "fr", "NA", "", "ünï"], rows),
            "code": rng.choice([10, 20, -30], rows),
            "never": rng.choice(["x", "y"], rows),
        }
    )
    score = 2.0 * frame.country.isin(["fr", "NA", ""]) + (frame.code == 20) + frame.amount.fillna(1)
    return frame, np.where(score + rng.logistic(size=rows) / 2 > 1.5, "fraud", "genuine")


@pytest.mark.parametrize(
    "options", [{}, {"grow_policy": "Lossguide"}, {"loss_function": "MultiClass"}], ids=["default", "deep", "three"]
)
def test_categories_that_are_encoded_one_hot_are_exact(tmp_path: Path, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    frame, target = categories(rng)
    if "loss_function" in options:
        target = np.where(rng.random(len(target)) < 0.2, "unclear", target)
    categorical = ["country", "code", "never"]
    estimator = catboost.CatBoostClassifier(**QUIET, **options, cat_features=categorical, one_hot_max_size=10)
    estimator.fit(frame, target).save_model(str(tmp_path / "model.cbm"))
    converted = convert(tmp_path / "model.cbm")
    assert converted.columns is not None
    assert converted.complete is not None
    texts = {name: frame[name].astype(str).unique().tolist() for name in categorical}
    columns, native = converted.complete(converted.columns, texts)
    assert {each.name: set(each.categories or ()) for each in columns.columns[1:]} == {
        "country": {"at", "de", "fr", "NA", "", "ünï"},
        "code": {"10", "20", "-30"},
        "never": {"x", "y"},
    }
    tried = frame.astype(object)
    tried.loc[:60, "country"] = "nowhere"  # unknown to the model
    tried.loc[40:90, "code"] = 77
    encoded = columns.encode(tried.to_dict("records"))
    expected = estimator.predict_proba(tried)
    found = answer(converted, matrix(converted, encoded))
    assert compare(found, expected, encoded, library="catboost").difference < 1e-6
    assert np.allclose(native(matrix(converted, encoded)), expected, atol=1e-12)
    lacking = tried.assign(country=None, code=None)
    empty = answer(converted, matrix(converted, columns.encode(lacking.to_dict("records"))))
    other = estimator.predict_proba(tried.assign(country="nowhere", code=77))  # CatBoost itself refuses None
    assert np.allclose(empty, other, atol=1e-6)


def test_any_text_is_a_category() -> None:
    texts = ["", 'a"b', "it's", "a\\b", "a\nb", "??=", "\x00", "😀", "\xe9a", "{", '}": 5,', "\n}\n", "a" * 300]
    frame = pd.DataFrame({"amount": np.arange(130.0), "text": texts * 10})
    estimator = catboost.CatBoostClassifier(**QUIET, cat_features=["text"], one_hot_max_size=20)
    estimator.fit(frame, (frame.text.map(texts.index) % 3 == 0) ^ (frame.amount % 7 > 4))
    converted = convert(estimator)
    assert converted.columns is not None
    assert converted.complete is not None
    columns, _ = converted.complete(converted.columns, {"text": texts})
    places = [columns.columns[1].codes[text] for text in texts * 10]
    encoded = np.column_stack([frame.amount, places]).astype(np.float32)
    found = answer(converted, matrix(converted, encoded))
    assert compare(found, estimator.predict_proba(frame), encoded, library="catboost").difference < 1e-6


def test_a_category_without_a_name_is_asked_for() -> None:
    frame, target = categories(np.random.default_rng(4))
    estimator = catboost.CatBoostClassifier(**QUIET, cat_features=["country", "code", "never"], one_hot_max_size=10)
    converted = convert(estimator.fit(frame, target))
    assert converted.columns is not None
    assert converted.complete is not None
    with pytest.raises(
        UnsupportedModelError, match=r"3 of 6 categories of `country`, 0 of 3 categories of `code`.*--categories"
    ):
        converted.complete(converted.columns, {"country": ["fr", "NA", "", "nowhere"], "code": [], "never": []})


@pytest.mark.parametrize(("named", "told"), [(True, "one_hot_max_size"), (False, "feature_names")])
def test_categories_as_statistics_or_without_names_are_refused(named: bool, told: str) -> None:
    frame = pd.DataFrame({"amount": np.arange(120.0), "country": ["at", "de", "fr"] * 40})
    estimator = catboost.CatBoostClassifier(**QUIET, one_hot_max_size=2 if named else 5, cat_features=[1])
    estimator.fit(frame if named else frame.to_numpy().tolist(), [0, 0, 1, 1] * 30)
    with pytest.raises(UnsupportedModelError, match=rf"categories.*{told}"):
        convert(estimator)


def test_texts_are_refused_with_what_to_do() -> None:
    frame = pd.DataFrame({"amount": np.arange(120.0), "note": ["a late b", "c early d", "late early"] * 40})
    estimator = catboost.CatBoostClassifier(**QUIET, text_features=["note"]).fit(frame, [0, 0, 1, 1] * 30)
    with pytest.raises(UnsupportedModelError, match=r"texts in 'note'.*candor import scores"):
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
