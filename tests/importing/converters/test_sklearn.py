"""scikit-learn to ONNX: the graph answers as scikit-learn does, with texts, imputed values and trees at thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import xgboost
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from bundle import InputSpec, TensorSpec
from bundle.tensors import encode
from importing.converters.sklearn import convert
from importing.errors import NativeDifferenceError, UnsafeFileError, UnsupportedModelError
from importing.native import compare
from tests.importing.answers import answer, at_thresholds, features, labels, matrix

TREES = [
    DecisionTreeClassifier(max_depth=6, random_state=0),
    RandomForestClassifier(20, max_depth=6, random_state=0),
    ExtraTreesClassifier(20, max_depth=6, random_state=0),
    GradientBoostingClassifier(n_estimators=20, random_state=0),
    HistGradientBoostingClassifier(max_iter=20, random_state=0),
]


def rows_and_labels(classes: int, *, missing: bool = True) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    rows = features(rng)
    target = labels(rng, rows, classes)
    return (rows if missing else np.nan_to_num(rows)), target


@pytest.mark.parametrize(
    ("estimator", "classes"),
    [
        *[(tree, classes) for tree in TREES for classes in (2, 3)],
        (GradientBoostingClassifier(n_estimators=20, loss="exponential"), 2),
    ],
    ids=str,
)
def test_trees_answer_as_scikit_learn(estimator: Any, classes: int) -> None:
    rows, target = rows_and_labels(classes, missing=not isinstance(estimator, GradientBoostingClassifier))
    converted = convert(estimator.fit(rows, target))
    tried = at_thresholds(converted, rows)
    feeds = matrix(converted, tried)
    check = compare(answer(converted, feeds), converted.native(feeds), tried, library=converted.library)
    assert check.difference < 1e-6
    assert check.library.startswith("scikit-learn 1.")


@pytest.mark.parametrize(
    "estimator",
    [
        *[make_pipeline(StandardScaler(), tree) for tree in TREES],
        make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), LogisticRegression()),
        make_pipeline(SimpleImputer(missing_values=0.0, strategy="constant", fill_value=-7), GaussianNB()),
        make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression(max_iter=2000)),  # float32
        make_pipeline(StandardScaler(), MLPClassifier(8, max_iter=20, random_state=0)),
        AdaBoostClassifier(n_estimators=10, random_state=0),
        make_pipeline(StandardScaler(), lightgbm.LGBMClassifier(n_estimators=20, verbosity=-1, n_jobs=1)),
        make_pipeline(StandardScaler(), xgboost.XGBClassifier(n_estimators=20, n_jobs=1)),
        make_pipeline(
            StandardScaler(), catboost.CatBoostClassifier(iterations=20, verbose=0, allow_writing_files=False)
        ),
    ],
    ids=lambda estimator: "-".join(type(step).__name__ for _, step in getattr(estimator, "steps", [("", estimator)])),
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # LightGBM, of its own pipeline
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_pipelines_of_numbers_answer_as_scikit_learn(estimator: Any) -> None:
    rows, target = rows_and_labels(3, missing=False)
    rows[:, 3] -= 1.7e9  # PolynomialFeatures exists in float32 only
    names = np.arange(3) if "xgbclassifier" in getattr(estimator, "named_steps", {}) else np.array(["z", "y", "x"])
    converted = convert(estimator.fit(rows, names[target]))
    assert converted.labels == tuple(sorted(map(str, names)))
    feeds = matrix(converted, rows)
    check = compare(answer(converted, feeds), converted.native(feeds), rows, library=converted.library)
    assert check.difference < 1e-5
    assert np.allclose(
        converted.native(feeds), estimator.predict_proba(rows.astype(feeds["features"].dtype)), atol=1e-9
    )


def mixed(*members: Any, **options: Any) -> VotingClassifier:
    return VotingClassifier([(str(place), member) for place, member in enumerate(members)], **options)


@pytest.mark.parametrize(
    ("estimator", "classes"),
    [
        (LinearDiscriminantAnalysis(), 2),
        (make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()), 2),
        (LinearDiscriminantAnalysis(), 3),
        (make_pipeline(KBinsDiscretizer(4, strategy="uniform"), LogisticRegression()), 2),
        (mixed(LogisticRegression(), GaussianNB(), voting="soft"), 2),
        (mixed(LinearDiscriminantAnalysis(), GaussianNB(), voting="soft", weights=[1, 3]), 2),
        (mixed(make_pipeline(StandardScaler(), LogisticRegression()), GaussianNB(), voting="soft"), 3),
        (CalibratedClassifierCV(LogisticRegression(), cv=2), 2),
    ],
    ids=str,
)
def test_what_skl2onnx_converts_only_in_another_form(estimator: Any, classes: int) -> None:
    rows = np.random.default_rng(1).normal(size=(300, 4))
    target = np.digitize(rows[:, 0] + rows[:, 1] ** 2, [0.0, 1.0][: classes - 1])
    before = estimator.fit(rows, target).predict_proba(rows)
    converted = convert(estimator)
    feeds = matrix(converted, rows)
    check = compare(answer(converted, feeds), converted.native(feeds), rows, library=converted.library)
    assert check.difference < 1e-5
    np.testing.assert_array_equal(estimator.predict_proba(rows), before, "the caller's own object stays as it was")


@pytest.mark.parametrize(
    ("estimator", "told"),
    [
        (CalibratedClassifierCV(GaussianNB(), cv=2, method="isotonic"), "interpolates.*method='sigmoid'"),
        (
            CalibratedClassifierCV(GaussianNB(), cv=2, method="temperature"),
            "does not convert.*--calibrator temperature",
        ),
        (
            CalibratedClassifierCV(make_pipeline(StandardScaler(), LogisticRegression()), cv=2),
            r"decision values.*StandardScaler → LogisticRegression.*make_pipeline\(…, CalibratedClassifierCV",
        ),
    ],
)
def test_calibrated_models_that_skl2onnx_changes_are_refused(estimator: Any, told: str) -> None:
    rows, target = rows_and_labels(2, missing=False)
    with pytest.raises(UnsupportedModelError, match=told):
        convert(estimator.fit(rows, target))


def table(rows: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "amount in EUR": np.where(rng.random(rows) < 0.1, np.nan, rng.lognormal(3, 1, rows)),
            "country": rng.choice(["at", "de", "fr"], rows).astype(object),
            "identifier": np.arange(rows),
            "size": rng.choice(["s", "m", "l"], rows).astype(object),
            "channel": rng.integers(0, 4, rows),
        }
    )
    score = (frame["country"] == "fr") + (frame["channel"] == 2) + np.log(frame["amount in EUR"].fillna(1)) / 3
    return frame, np.where(score + rng.normal(size=rows) / 2 > 1.5, "fraud", "genuine")


@pytest.mark.parametrize(
    "last",
    [
        LogisticRegression(max_iter=2000),
        RandomForestClassifier(20, random_state=0),
        lightgbm.LGBMClassifier(n_estimators=20, verbosity=-1, n_jobs=1),
    ],
    ids=lambda last: type(last).__name__,
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.filterwarnings("ignore:Found unknown categories in columns")
def test_texts_are_inputs_under_the_names_of_their_columns(tmp_path: Path, last: Any) -> None:
    frame, target = table()
    estimator = make_pipeline(
        make_column_transformer(
            (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), ["amount in EUR"]),
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["country", "channel"]),
            (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["size"]),
        ),
        last,
    ).fit(frame, target)
    skops.io.dump(estimator, tmp_path / "model.skops")
    converted = convert(tmp_path / "model.skops")
    assert converted.labels == ("fraud", "genuine")
    assert converted.columns is not None
    assert [column.name for column in converted.columns.columns] == ["amount in EUR", "country", "size", "channel"]
    assert [(entry.name, entry.dtype, entry.shape) for entry in converted.graph.inputs] == [
        ("amount in EUR", "float64", (1,)),
        ("country", "string", (1,)),
        ("size", "string", (1,)),
        ("channel", "int64", (1,)),
    ]
    tried = frame.copy()
    tried.loc[:50, "country"] = "xx"
    tried.loc[30:80, "size"] = "unknown"
    tried.loc[70:120, "channel"] = 99
    feeds = {
        entry.name: tried[[entry.name]].to_numpy(object if entry.dtype == "string" else entry.dtype)
        for entry in converted.graph.inputs
    }
    check = compare(
        answer(converted, feeds), estimator.predict_proba(tried), tried.to_numpy(), library=converted.library
    )
    assert check.difference < 1e-6
    assert np.allclose(converted.native(feeds), estimator.predict_proba(tried), atol=1e-12)
    # As the service feeds it.
    tensors = tuple(
        TensorSpec(name=entry.name, dtype=entry.dtype, shape=entry.shape) for entry in converted.graph.inputs
    )
    spec = InputSpec(kind="tensors", dtype="record", tensors=tensors)
    converted.graph.check(spec, 2)
    complete = tried[tried["amount in EUR"].notna()][:20]
    names = [entry.name for entry in converted.graph.inputs]
    encoded = encode([{name: [row[name]] for name in names} for row in complete.to_dict("records")], spec)
    found = answer(converted, converted.graph.feeds(encoded))
    assert np.allclose(found, estimator.predict_proba(complete), atol=1e-6)


def test_named_columns_of_numbers_are_one_matrix_without_the_dropped_ones() -> None:
    frame, target = table()
    estimator = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["channel"]),
            (SimpleImputer(), ["amount in EUR"]),
        ),
        LogisticRegression(max_iter=2000),
    ).fit(frame, target)
    converted = convert(estimator)
    assert converted.columns is not None
    assert [column.name for column in converted.columns.columns] == ["amount in EUR", "channel"]
    feeds = matrix(converted, frame[["amount in EUR", "channel"]].to_numpy())
    assert np.allclose(answer(converted, feeds), estimator.predict_proba(frame), atol=1e-6)
    assert np.allclose(converted.native(feeds), estimator.predict_proba(frame), atol=1e-12)


@pytest.mark.parametrize("missing", ["", np.nan, None])
def test_imputed_texts_are_empty_in_the_graph(missing: Any) -> None:
    frame, target = table()
    country = frame["country"].to_numpy(object)
    country[::5] = missing
    frame["country"] = pd.Series(country, dtype=object)
    imputer = SimpleImputer(missing_values=missing, strategy="most_frequent")
    estimator = make_pipeline(
        make_column_transformer((make_pipeline(imputer, OneHotEncoder(sparse_output=False)), ["country"])),
        LogisticRegression(),
    ).fit(frame, target)
    converted = convert(estimator)
    feeds = {"country": np.where(frame[["country"]].isna(), "", frame[["country"]]).astype(object)}
    assert np.allclose(answer(converted, feeds), estimator.predict_proba(frame), atol=1e-6)
    assert np.allclose(converted.native(feeds), estimator.predict_proba(frame), atol=1e-12)


@pytest.mark.parametrize(
    "estimator", [*TREES, xgboost.XGBClassifier(n_estimators=5)], ids=lambda each: type(each).__name__
)
def test_files_of_skops(tmp_path: Path, estimator: Any) -> None:
    rows, target = rows_and_labels(2, missing=False)
    skops.io.dump(estimator.fit(rows, target), tmp_path / "model")
    converted = convert(tmp_path / "model")
    feeds = matrix(converted, rows)
    assert np.allclose(converted.native(feeds), estimator.predict_proba(feeds["features"]), atol=1e-9)
    assert np.allclose(answer(converted, feeds), converted.native(feeds), atol=1e-5)


def test_a_skops_file_of_a_data_frame_of_numbers(tmp_path: Path) -> None:
    rows, target = rows_and_labels(3, missing=False)
    frame = pd.DataFrame(rows[:, :3], columns=["b", "a a", "c"])
    estimator = make_pipeline(PolynomialFeatures(1), LogisticRegression(max_iter=5000)).fit(frame, target)
    skops.io.dump(estimator, tmp_path / "model.skops")
    converted = convert(tmp_path / "model.skops")
    assert converted.columns is not None
    assert [column.name for column in converted.columns.columns] == ["b", "a a", "c"]
    assert [(entry.name, entry.shape) for entry in converted.graph.inputs] == [("features", (3,))]
    feeds = matrix(converted, frame.to_numpy())
    assert np.allclose(answer(converted, feeds), estimator.predict_proba(frame), rtol=0, atol=1e-5)


def shout(rows: Any) -> Any:
    return rows


def test_unknown_types_are_refused_and_named(tmp_path: Path) -> None:
    rows, target = rows_and_labels(2, missing=False)
    estimator = make_pipeline(FunctionTransformer(shout), LogisticRegression(max_iter=5000)).fit(rows, target)
    skops.io.dump(estimator, tmp_path / "model.skops")
    with pytest.raises(UnsafeFileError, match=r"does not trust.*shout.*candor\.import_model\("):
        convert(tmp_path / "model.skops")


@pytest.mark.parametrize("field", ["left_child", "feature"])
def test_a_damaged_tree_is_refused(tmp_path: Path, field: str) -> None:
    rows, target = rows_and_labels(2, missing=False)
    estimator = RandomForestClassifier(3, random_state=0).fit(rows, target)
    tree = estimator.estimators_[1].tree_
    state = tree.__getstate__()
    state["nodes"][field][0] = 100_000
    tree.__setstate__(state)
    skops.io.dump(make_pipeline(StandardScaler().fit(rows), estimator), tmp_path / "model.skops")
    with pytest.raises(UnsafeFileError, match="a tree in the file is damaged"):
        convert(tmp_path / "model.skops")


def test_a_tree_for_wider_rows_is_refused(tmp_path: Path) -> None:
    rows, target = rows_and_labels(2, missing=False)
    estimator = RandomForestClassifier(3, random_state=0).fit(rows, target)
    estimator.estimators_[1].fit(np.tile(rows, 100), target)
    skops.io.dump(estimator, tmp_path / "model.skops")
    with pytest.raises(UnsafeFileError, match="outside a row"):
        convert(tmp_path / "model.skops")


def test_a_conversion_of_skl2onnx_that_lies_is_caught() -> None:
    rows, target = rows_and_labels(2, missing=False)
    base = make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0))
    converted = convert(CalibratedClassifierCV(base, cv=2).fit(rows, target))
    feeds = matrix(converted, rows)
    with pytest.raises(NativeDifferenceError, match=r"scikit-learn.* disagree"):
        compare(answer(converted, feeds), converted.native(feeds), rows, library=converted.library)


@pytest.mark.parametrize("classes", [2, 3])
def test_categories_of_histogram_boosting_are_sets(classes: int) -> None:
    random = np.random.default_rng(5)
    codes = random.integers(0, [40, 3], (900, 2)).astype(np.float64)
    rows = np.column_stack([random.normal(size=900), codes[:, 0], random.normal(size=900), codes[:, 1]])
    target = ((codes[:, 0] % 5 < 2).astype(int) + (rows[:, 0] > codes[:, 1] - 1) + random.integers(0, 2, 900)) % classes
    rows[random.random(rows.shape) < 0.1] = np.nan
    estimator = HistGradientBoostingClassifier(categorical_features=[1, 3], max_iter=15, random_state=0)
    converted = convert(estimator.fit(rows, target))
    feeds = matrix(converted, rows)
    assert (
        compare(answer(converted, feeds), estimator.predict_proba(rows), rows, library="scikit-learn").difference < 1e-6
    )
    shifted = rows + np.array([0, 2, 0, 0])  # numbers that are not 0, 1, 2 …
    with pytest.raises(UnsupportedModelError, match="0, 1, 2"):
        convert(HistGradientBoostingClassifier(categorical_features=[1], max_iter=2).fit(shifted, target))


@pytest.mark.parametrize(
    ("estimator", "told"),
    [
        (LinearRegression(), "not a fitted classifier"),
        (make_pipeline(StandardScaler(), RidgeClassifier()), "gives no probabilities"),
        (LogisticRegression(), "not a fitted classifier"),
        (make_pipeline(FunctionTransformer(shout), LogisticRegression(max_iter=5000)), "FunctionTransformer"),
        (GradientBoostingClassifier(init=GaussianNB(), n_estimators=2), "starts from another model"),
    ],
    ids=["regressor", "no probabilities", "not fitted", "own function", "init"],
)
def test_what_cannot_be_converted_is_refused(request: pytest.FixtureRequest, estimator: Any, told: str) -> None:
    rows, target = rows_and_labels(2, missing=False)
    if "not fitted" not in request.node.name:
        estimator.fit(np.maximum(rows, 0), target)
    with pytest.raises(UnsupportedModelError, match=told):
        convert(estimator)


def test_texts_without_names_and_missing_categories_are_refused() -> None:
    frame, target = table()
    estimator = make_pipeline(OneHotEncoder(), LogisticRegression())
    with pytest.raises(UnsupportedModelError, match="columns without names"):
        convert(estimator.fit(frame[["country"]].to_numpy(), target))
    frame.loc[::7, "country"] = None
    with pytest.raises(UnsupportedModelError, match=r"not texts.*nan"):
        convert(estimator.fit(frame[["country"]], target))


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.skops").write_text("tree\n")
    with pytest.raises(UnsupportedModelError, match=r"not a skops file.*skops\.io\.dump"):
        convert(tmp_path / "model.skops")


@pytest.mark.parametrize("step", [TfidfVectorizer(), CountVectorizer(), HashingVectorizer()])
@pytest.mark.parametrize("within", [True, False])
def test_text_vectorisers_are_refused_by_name(tmp_path: Path, step: Any, within: bool) -> None:
    texts, target = ["foo bar", "bar baz", "foo", "baz"] * 5, [0, 1, 0, 1] * 5
    rows: Any = pd.DataFrame({"text": texts, "amount": range(20)}) if within else texts
    first = ColumnTransformer([("words", step, "text"), ("rest", "passthrough", ["amount"])]) if within else step
    skops.io.dump(make_pipeline(first, LogisticRegression()).fit(rows, target), tmp_path / "model.skops")
    told = rf"{'words' if within else 'vectorizer'}: text vectorisers.*{type(step).__name__}.*candor import scores"
    with pytest.raises(UnsupportedModelError, match=told):
        convert(tmp_path / "model.skops")


def test_a_classifier_without_probabilities_and_a_step_without_columns_are_named() -> None:
    rows, target = rows_and_labels(2, missing=False)
    with pytest.raises(UnsupportedModelError, match=r"Wrap LinearSVC in .*CalibratedClassifierCV.*decision_function"):
        convert(make_pipeline(StandardScaler(), LinearSVC()).fit(rows, target))
    scaler = make_pipeline(FunctionTransformer(), LogisticRegression()).fit(rows, target)
    del scaler[0].n_features_in_
    with pytest.raises(UnsupportedModelError, match=r"how many columns.*Found: FunctionTransformer\."):
        convert(scaler)


@pytest.mark.parametrize("step", [DictVectorizer(), FeatureHasher(8)])
def test_models_of_dictionaries_are_refused_with_a_remedy(step: Any) -> None:
    model = make_pipeline(step, LogisticRegression()).fit([{"a": 1.0}, {"b": 1.0}], [0, 1])
    told = rf"dictionaries, not columns.*{type(step).__name__}.*OneHotEncoder.*in place of {type(step).__name__}"
    with pytest.raises(UnsupportedModelError, match=told):
        convert(model)
