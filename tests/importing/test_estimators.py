"""candor.import_model: from an object and rows in memory to a bundle that answers as the object does."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC

import bundle
import candor
from importing.errors import (
    AmbiguousModelError,
    ImportRefusedError,
    NativeDifferenceError,
    RowsError,
    UnsupportedModelError,
)
from importing.rows.memory import rows_in_memory

from .answers import answers


def table(rows: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "amount in EUR": np.where(rng.random(rows) < 0.1, np.nan, rng.lognormal(3, 1, rows)),
            "country": pd.Categorical(rng.choice(["at", "de", "fr"], rows)),
            "hour": rng.integers(0, 24, rows),
        }
    )
    score = (frame["country"] == "fr") + frame["hour"] / 24 + np.log(frame["amount in EUR"].fillna(9)) / 3
    return frame, np.where(score + rng.normal(size=rows) / 2 > 2, "fraud", "genuine")


@pytest.mark.filterwarnings("ignore:Found whitespace in feature_names")
def test_lightgbm_of_a_data_frame(tmp_path: Path) -> None:
    frame, target = table()
    estimator = lightgbm.LGBMClassifier(n_estimators=20, verbosity=-1, n_jobs=1).fit(frame, target)
    groups = np.arange(len(frame)) // 2
    path = candor.import_model(
        estimator, frame, target, name="payments", out=tmp_path, calibrator="temperature", group=groups, seed=3
    )
    assert path == tmp_path / "payments" / "1"
    found = bundle.verify(path)
    assert found.manifest.labels == ("fraud", "genuine")
    record = found.manifest.imported
    assert record is not None
    assert record.native is not None
    assert (record.format, record.source, record.native.rows) == ("lightgbm", "LGBMClassifier", len(frame))
    assert record.native.difference < 1e-6
    assert found.reference.fit.group is not None
    complete = frame.astype(object).where(frame.notna(), None)
    assert np.allclose(answers(found, complete.to_dict("records")), estimator.predict_proba(frame), atol=1e-6)


def test_xgboost_of_a_matrix(tmp_path: Path) -> None:
    frame, target = table()
    rows = frame[["amount in EUR", "hour"]].to_numpy()
    estimator = xgboost.XGBClassifier(n_estimators=20, n_jobs=1).fit(rows, target == "fraud")
    path = candor.import_model(estimator, rows, target == "fraud", name="payments", out=tmp_path, calibrator="platt")
    found = bundle.verify(path)
    assert found.manifest.labels == ("0", "1")
    assert found.columns is not None
    assert [column.name for column in found.columns.columns] == ["f0", "f1"]


def test_classes_get_the_names_that_people_know(tmp_path: Path) -> None:
    frame, target = table()
    rows, codes = frame[["hour"]].to_numpy(), (target == "fraud").astype(int)
    estimator = lightgbm.LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1).fit(rows, codes)
    named = {True: "fraud, or worse", 0: "genuine"}  # True is 1
    path = candor.import_model(estimator, rows, codes, name="payments", labels=named, out=tmp_path)
    reference = bundle.verify(path).reference
    assert bundle.verify(path).manifest.labels == ("genuine", "fraud, or worse")
    labels = np.concatenate([part.labels for part in (reference.fit, reference.certify, reference.gate)])
    assert labels.sum() == codes.sum()
    for wrong in ({1: "fraud"}, {0: "same", 1: "same"}, {0: "a", 1: "b", 2: "c"}, {0: "", 1: "b"}, {}):
        with pytest.raises(UnsupportedModelError, match=r"a different name for each of \[0, 1\]"):
            candor.import_model(estimator, rows, codes, name="payments", labels=wrong, out=tmp_path)
    listed: Any = ["genuine", "fraud"]
    with pytest.raises(
        UnsupportedModelError, match=r"labels is not a mapping.*a dict with a name for each of \[0, 1\]"
    ):
        candor.import_model(estimator, rows, codes, name="payments", labels=listed, out=tmp_path)


def test_numbers_that_contradict_the_order_of_the_names_are_refused(tmp_path: Path) -> None:
    frame, target = table()
    rows = frame[["hour"]].to_numpy()
    estimator = LogisticRegression().fit(rows, target)  # its classes are fraud, genuine
    codes = (target == "fraud").astype(int)
    told = r"rank `genuine` below `fraud`.*probably 1=fraud,0=genuine\. Give y with .*labels=.*allow_reversed=True"
    with pytest.raises(AmbiguousModelError, match=told):
        candor.import_model(estimator, rows, codes, name="payments", out=tmp_path)
    assert not list(tmp_path.iterdir())
    for y, more in ((target, {}), (codes, {"allow_reversed": True})):
        assert candor.import_model(estimator, rows, y, name="payments", out=tmp_path, **more).exists()


def test_a_pipeline_with_texts(tmp_path: Path) -> None:
    frame, target = table()
    frame = frame.fillna({"amount in EUR": 1.0}).astype({"country": str})
    estimator = make_pipeline(
        make_column_transformer(
            (StandardScaler(), ["amount in EUR", "hour"]), (OneHotEncoder(handle_unknown="ignore"), ["country"])
        ),
        LogisticRegression(),
    ).fit(frame, target)
    path = candor.import_model(estimator, frame, target, name="payments", out=tmp_path, calibrator="temperature")
    found = bundle.verify(path)
    sent = [{"amount in EUR": 12.5, "hour": 3, "country": "fr"}, {"amount in EUR": 0.5, "hour": 23, "country": "xx"}]
    assert np.allclose(answers(found, sent), estimator.predict_proba(pd.DataFrame(sent)), atol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "missing"),
    [
        (LogisticRegression(), False),
        (GaussianNB(), False),
        (RandomForestClassifier(10, random_state=0), False),
        (make_pipeline(SimpleImputer(), LogisticRegression()), True),
        (make_pipeline(StandardScaler(), LogisticRegression()), False),
        (make_pipeline(PolynomialFeatures(2), LogisticRegression()), False),
        (CalibratedClassifierCV(LogisticRegression(), cv=2), False),
        (
            make_pipeline(
                make_column_transformer((StandardScaler(), ["hour", "ratio"]), ("passthrough", ["abroad"])),
                LogisticRegression(),
            ),
            False,
        ),
    ],
    ids=lambda value: "-".join(type(step).__name__ for _, step in getattr(value, "steps", [("", value)])),
)
def test_a_data_frame_of_numbers(tmp_path: Path, estimator: Any, missing: bool) -> None:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {"ratio": rng.normal(size=400), "hour": rng.integers(0, 24, 400) / 8, "abroad": rng.random(400) < 0.4}
    )
    target = np.where(frame["ratio"] - frame["hour"] + frame["abroad"] + rng.normal(size=400) > 0, "fraud", "genuine")
    if missing:
        frame = frame.astype(float).mask(rng.random(frame.shape) < 0.1)
    estimator.fit(frame, target)
    path = candor.import_model(estimator, frame, target, name="payments", out=tmp_path, calibrator="temperature")
    numbers = frame.astype(float).astype(object)
    sent = numbers.where(frame.notna(), None)[["abroad", "hour", "ratio"]].to_dict("records")  # in any order
    assert np.allclose(answers(bundle.verify(path), sent), estimator.predict_proba(frame), rtol=0, atol=1e-5)


def test_a_lying_conversion_writes_nothing(tmp_path: Path) -> None:
    frame, target = table()
    rows = frame[["hour"]].to_numpy() / 7
    base = make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0))
    estimator = CalibratedClassifierCV(base, cv=2).fit(rows, target)
    with pytest.raises(NativeDifferenceError, match=r"scikit-learn.* disagree"):
        candor.import_model(estimator, rows, target, name="payments", out=tmp_path, group=range(len(rows)))
    assert not list(tmp_path.iterdir())


def test_other_objects_are_refused(tmp_path: Path) -> None:
    class Own:
        predict_proba = None

    with pytest.raises(UnsupportedModelError, match=r"no converter knows .*Own"):
        candor.import_model(Own(), [[1.0]], [0], name="payments", out=tmp_path)
    with pytest.raises(RowsError, match=r"split is invalid.*three shares"):
        candor.import_model(Own(), [[1.0]], [0], name="payments", out=tmp_path, split=(0.5, 0.5))
    with pytest.raises(UnsupportedModelError, match=r"no probabilities.*LinearSVC.*decision_function"):
        candor.import_model(LinearSVC().fit([[0.0], [1.0]], [0, 1]), [[1.0]], [0], name="payments", out=tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"no probabilities.*Path.*candor import lightgbm"):
        candor.import_model(tmp_path, [[1.0]], [0], name="payments", out=tmp_path)


def test_without_the_application_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}", name="importing")

    own_model = importlib.import_module("candor.own_model")
    monkeypatch.setattr(own_model, "import_module", absent)
    with pytest.raises(ImportError, match=r"'\.\[import,cpu\]'"):
        candor.import_model(None, [[1.0]], [0], name="payments", out=tmp_path)


@pytest.mark.parametrize(
    ("X", "y", "more", "told"),
    [
        (np.ones(3), [0, 1, 0], {}, "not a table"),
        (np.array([["a"]]), [0], {}, "not a table"),
        (np.ones((3, 2)), [0, 1], {}, r"another shape.*Found: \(2,\)"),
        (np.ones((3, 2)), [0, None, 1], {}, "y, row 2: The label is missing"),
        (np.ones((3, 2)), ["a", np.nan, "b"], {}, "y, row 2: The label is missing. Found: nan"),
        (np.ones((3, 2)), pd.array([0, None, 1], "Int64"), {}, "y, row 2: The label is missing"),
        (np.ones((3, 2)), [0, 1, 0], {"weight": [1, 0, 1]}, "not a positive number"),
        (np.ones((3, 2)), [0, 1, 0], {"names": ["a"]}, "another width"),
        (pd.DataFrame({"at": pd.to_datetime(["2026-01-01"])}), [0], {}, "X, column at: A column is neither"),
        (
            np.ones((2, 2)),
            [0, 1],
            {"time": pd.to_datetime(["2026-01-01T00Z", None])},
            "time, row 2: The time is missing",
        ),
        (np.ones((2, 2)), [0, 1], {"time": ["2026-01-01", "soon"]}, "time, row 2: The time is not valid.*soon"),
        (np.ones((2, 2)), [0, 1], {"weight": [1, "much"]}, r"A weight is not valid.*much"),
        (np.ones((2, 2)), [1, 1], {}, "All rows have the same label"),
    ],
)
def test_what_are_no_rows_is_refused(X: Any, y: Any, more: dict[str, Any], told: str) -> None:
    with pytest.raises(RowsError, match=told):
        rows_in_memory(X, y, **more)


def test_rows_in_memory_are_rows() -> None:
    frame, target = table(50)
    rows = rows_in_memory(
        frame, target, group=["a"] * 49 + [None], time=["2026-01-01T00:00:01"] * 50, weight=np.full(50, 2)
    )
    assert rows.features["amount in EUR"].dtype == np.float64
    assert rows.features["country"].tolist() == frame["country"].astype(object).tolist()
    assert rows.group is not None
    assert rows.group[-1] is None
    assert rows.time is not None
    assert rows.time[0] == 1767225601 * 1_000_000
    for time in (pd.Series(pd.to_datetime(["2026-01-01T02:00:01+02:00"] * 50)), [1767225601] * 50):
        assert rows_in_memory(frame, target, time=time).time.tolist() == rows.time.tolist()  # type: ignore[union-attr]
    again = rows_in_memory(frame.iloc[::-1], target)
    assert rows.sha256 != again.sha256


def test_labels_that_the_estimator_does_not_know_are_told_in_terms_of_the_function(tmp_path: Path) -> None:
    frame, target = table(60)
    rows = frame[["hour"]].to_numpy()
    estimator = LogisticRegression().fit(rows, target)
    with pytest.raises(UnsupportedModelError) as caught:
        candor.import_model(estimator, rows, [*target[:-1], "theft"], name="payments", out=tmp_path)
    assert str(caught.value) == (
        "X, row 60: y has other classes than the model. Found: theft. Expected: fraud, genuine. "
        "Give y with the estimator's classes; labels= renames them."
    )


def test_y_may_be_one_column_and_no_more(tmp_path: Path) -> None:
    frame, target = table()
    rows = frame[["hour"]].to_numpy()
    estimator = LogisticRegression().fit(rows, target)
    options: dict[str, Any] = {"name": "payments", "calibrator": "temperature"}
    column = pd.DataFrame({"is_fraud": target})
    paths = [candor.import_model(estimator, rows, y, out=tmp_path / str(y.ndim), **options) for y in (target, column)]
    one, other = (bundle.verify(path).reference.fit.labels.tolist() for path in paths)
    assert one == other
    with pytest.raises(RowsError, match=r"y: y has another shape. Found: \(400, 2\). Expected: \(N,\) or \(N, 1\)."):
        candor.import_model(estimator, rows, np.tile(target[:, None], 2), out=tmp_path, **options)


def several() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(500, 3))
    return rows, (rows @ [[1.0, -1.0], [0.5, 1.0], [-1.0, 0.5]] + rng.logistic(size=(500, 2)) > 0).astype(float)


def test_an_estimator_for_each_label(tmp_path: Path) -> None:
    rows, marks = several()
    estimator = MultiOutputClassifier(LogisticRegression()).fit(rows, marks.astype(int))
    marks[::5, 1] = np.nan  # unknown
    given = {"out": tmp_path, "calibrator": "beta"}
    first = candor.import_model(estimator, rows, marks, name="comments", label_columns=["toxic", "insult"], **given)
    assert first == tmp_path / "comments--toxic" / "1"
    for place, label in enumerate(("toxic", "insult")):
        known = ~np.isnan(marks[:, place])
        own = marks[known, place].astype(int)
        names = {0: "absent", 1: "present"}
        alone = candor.import_model(
            estimator.estimators_[place], rows[known], own, name=f"alone{place}", labels=names, **given
        )
        found, expected = bundle.verify(tmp_path / f"comments--{label}" / "1"), bundle.verify(alone)
        assert found.calibrator.to_dict() == expected.calibrator.to_dict()
        assert found.manifest.label_of == bundle.LabelOf(model="comments", label=label, labels=("toxic", "insult"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.full((500, 2), 2)}, "row 1, column 1: A label is neither 0 nor 1"),
        ({"y": np.zeros((500, 3))}, "y has another shape"),
        ({"y": np.zeros((499, 2))}, "y has another shape"),
        ({"y": np.zeros(500)}, "y has another shape"),
        ({"label_columns": ["toxic", "insult", "threat"]}, "there is not one estimator for each label"),
        ({"label_columns": ["toxic"]}, "the label columns are not valid"),
        ({"labels": {0: "a", 1: "b"}}, "labels= belongs to models of one class"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows, marks = several()
    estimator = MultiOutputClassifier(LogisticRegression()).fit(rows, marks.astype(int))
    given = {"y": marks, "label_columns": ["toxic", "insult"]} | change
    with pytest.raises(ImportRefusedError, match=message):
        candor.import_model(estimator, rows, name="comments", out=tmp_path, **given)
    assert not list(tmp_path.iterdir())
