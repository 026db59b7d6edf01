"""`candor import` with the library's own file: its answers decide whether a conversion tells the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import skl2onnx
import skops.io
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from typer.testing import CliRunner

import bundle
import candor
from importing.cli import app

from .answers import answers

NAMES = ("amount", "hour", "age")


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(300, 3)) * [30, 6, 10]


@pytest.fixture(scope="module")
def target(rows: np.ndarray) -> np.ndarray:
    return (rows[:, 0] / 30 + rows[:, 1] / 6 + np.random.default_rng(6).normal(size=len(rows)) > 0).astype(int)


def run(folder: Path, rows: np.ndarray, target: np.ndarray, form: str, model: str, *more: str) -> tuple[Any, Path]:
    lines = [",".join([*NAMES, "fraud"])]
    lines += [",".join(map(repr, [*row, label])) for row, label in zip(rows.tolist(), target.tolist(), strict=True)]
    (folder / "rows.csv").write_text("\n".join(lines))
    fixed = [
        "--name",
        "mine",
        "--validation",
        str(folder / "rows.csv"),
        "--label",
        "fraud",
        "--calibrator",
        "temperature",
    ]
    result = CliRunner().invoke(app, [form, str(folder / model), *fixed, "--out", str(folder), *more])
    return result, folder / "mine" / "1"


@pytest.mark.parametrize("zipmap", [True, False, "columns"])
def test_a_graph_of_skl2onnx_beside_the_skops_file(
    tmp_path: Path, rows: np.ndarray, target: np.ndarray, zipmap: bool | str
) -> None:
    estimator = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, target)
    skops.io.dump(estimator, tmp_path / "model.skops")
    entries = [("x", skl2onnx.common.data_types.FloatTensorType([None, 3]))]
    made = skl2onnx.convert_sklearn(estimator, initial_types=entries, options={id(estimator): {"zipmap": zipmap}})
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    more = ["--output", "i1:positive"] if zipmap == "columns" else []
    result, path = run(tmp_path, rows, target, "onnx", "model.onnx", "--native", str(tmp_path / "model.skops"), *more)
    assert result.exit_code == 0, result.output + result.stderr
    record = bundle.verify(path).manifest.imported
    assert record is not None
    assert record.native is not None
    assert record.native.difference < 1e-5
    assert record.native.library.startswith("scikit-learn")


def test_a_graph_of_skl2onnx_that_lies_is_refused(tmp_path: Path, rows: np.ndarray, target: np.ndarray) -> None:
    rows = np.round(rows)  # values lie on thresholds
    estimator = make_pipeline(StandardScaler(), RandomForestClassifier(20, random_state=0)).fit(rows, target)
    skops.io.dump(estimator, tmp_path / "model.skops")
    entries = [("x", skl2onnx.common.data_types.FloatTensorType([None, 3]))]
    made = skl2onnx.convert_sklearn(estimator, initial_types=entries)
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    result, path = run(tmp_path, rows, target, "onnx", "model.onnx", "--native", str(tmp_path / "model.skops"))
    assert result.exit_code == 2, result.output
    assert "disagree on" in result.stderr
    assert "'amount'" in result.stderr
    assert not path.exists()
    result, path = run(tmp_path, rows, target, "sklearn", "model.skops")  # Candor's own conversion does not
    assert result.exit_code == 0, result.output + result.stderr
    assert path.exists()


def test_an_output_is_named_only_of_a_graph_that_came_as_onnx(
    tmp_path: Path, rows: np.ndarray, target: np.ndarray
) -> None:
    path = tmp_path / "model.txt"
    lightgbm.LGBMClassifier(n_estimators=2, verbosity=-1, n_jobs=1).fit(rows, target).booster_.save_model(path)
    result, _ = run(tmp_path, rows, target, "lightgbm", "model.txt", "--output", "scores")
    assert (result.exit_code, "--output belongs to graphs that came as ONNX" in result.stderr) == (2, True)


def test_the_names_of_the_model_stay_with_its_scores(tmp_path: Path, rows: np.ndarray, target: np.ndarray) -> None:
    named = np.array(["genuine", "fraud"])[target]
    estimator = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, named)  # its classes: fraud, genuine
    skops.io.dump(estimator, tmp_path / "model.skops")

    def sklearn(*more: str) -> tuple[int, str]:
        result, _ = run(tmp_path, rows, target, "sklearn", "model.skops", *more)
        return result.exit_code, " ".join((result.stderr or result.output).split())

    code, told = sklearn()
    assert (code, "probably --labels 1=fraud,0=genuine " in told) == (2, True), told
    code, told = sklearn("--labels", "1=genuine,0=fraud")
    assert (code, "found: genuine, fraud expected: fraud, genuine, as the scores are" in told) == (2, True), told
    assert not (tmp_path / "mine").exists()
    assert sklearn("--labels", "1=genuine,0=fraud", "--allow-reversed")[0] == 0
    code, told = sklearn("--labels", "1=fraud,0=genuine")
    assert code == 0, told


def test_categories_are_given_only_of_a_model_that_does_not_know_its_columns(
    tmp_path: Path, rows: np.ndarray, target: np.ndarray
) -> None:
    frame = pd.DataFrame(rows, columns=NAMES)
    model = lightgbm.LGBMClassifier(n_estimators=2, verbosity=-1, n_jobs=1).fit(frame, target)
    model.booster_.save_model(tmp_path / "model.txt")
    known = tmp_path / "known.json"
    known.write_text('{"hour": ["0", "1"]}')
    result, _ = run(tmp_path, rows, target, "lightgbm", "model.txt", "--categories", str(known))
    assert (result.exit_code, "--categories belongs to graphs that came as ONNX" in result.stderr) == (2, True)


def test_categories_of_catboost_by_command_and_in_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "amount": rng.normal(size=900).round(3),
            "country": rng.choice(["AT", "DE", "NA", ""], 900),
            "code": rng.choice([1, 2, 30], 900),
        }
    )
    fraud = frame.amount + 2.0 * frame.country.isin(["NA", ""]) + (frame.code == 30) + rng.normal(size=900) > 1.5
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "iterations": 20, "random_seed": 3}
    estimator = catboost.CatBoostClassifier(**quiet, cat_features=["country", "code"], one_hot_max_size=4)
    estimator.fit(frame, fraud.astype(int)).save_model(str(tmp_path / "model.cbm"))
    frame.assign(fraud=fraud.astype(int))[300:].to_csv(tmp_path / "rows.csv", index=False)
    frame.assign(fraud=fraud.astype(int))[frame.country != "DE"].to_csv(tmp_path / "few.csv", index=False)
    (tmp_path / "known.json").write_text('{"country": ["DE"]}')
    (tmp_path / "wrong.json").write_text('{"amount": ["DE"]}')

    def run(rows: str, name: str, *more: str) -> tuple[int, str]:
        words = ["--validation", str(tmp_path / rows), "--label", "fraud", "--calibrator", "temperature", *more]
        words += ["--name", name, "--out", str(tmp_path)]
        result = CliRunner().invoke(app, ["catboost", str(tmp_path / "model.cbm"), *words])
        return result.exit_code, " ".join((result.output + result.stderr).split())

    code, told = run("rows.csv", "mine")
    assert (code, "gives the same answers on 600 rows" in told) == (0, True), told
    code, told = run("few.csv", "other")
    assert (code, "3 of 4 categories of `country`" in told, "--categories" in told) == (2, True, True), told
    code, told = run("few.csv", "other", "--categories", str(tmp_path / "wrong.json"))
    assert (code, "--categories names columns without categories" in told) == (2, True), told
    assert run("few.csv", "other", "--categories", str(tmp_path / "known.json"))[0] == 0
    code, told = run("rows.csv", "none", "--native", str(tmp_path / "model.cbm"))
    assert (code, "--native cannot compare a CatBoost model with categories" in told) == (2, True), told
    made = candor.import_model(estimator, frame, fraud.astype(int), name="python", out=tmp_path)
    sent = [{"amount": 0.5, "country": country, "code": code} for country in ("NA", "", "XX") for code in (30, "1", 9)]
    expected = estimator.predict_proba(pd.DataFrame(sent)[["amount", "country", "code"]])
    for path in (tmp_path / "mine" / "1", tmp_path / "other" / "1", made):
        assert np.allclose(answers(bundle.verify(path), sent), expected, atol=1e-6)


def _boosted(frame: pd.DataFrame, target: pd.Series, file: Path) -> Any:
    model = lightgbm.LGBMClassifier(n_estimators=9, verbose=-1, n_jobs=1).fit(frame.astype({"city": CITIES}), target)
    model.booster_.save_model(file)
    return lambda rows: model.predict_proba(rows.astype({"city": CITIES}))


def _extreme(frame: pd.DataFrame, target: pd.Series, file: Path) -> Any:
    model = xgboost.XGBClassifier(n_estimators=9, enable_categorical=True, n_jobs=1)
    model.fit(frame.astype({"city": CITIES}), target).save_model(file)
    return lambda rows: model.predict_proba(rows.astype({"city": CITIES}))


def _hashed(frame: pd.DataFrame, target: pd.Series, file: Path) -> Any:
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "iterations": 9}
    model = catboost.CatBoostClassifier(**quiet, cat_features=["city"], one_hot_max_size=9).fit(frame, target)
    model.save_model(str(file))
    return model.predict_proba


def _encoded(frame: pd.DataFrame, target: pd.Series, file: Path) -> Any:
    encoder = OneHotEncoder(handle_unknown="ignore")
    steps = ColumnTransformer([("city", encoder, ["city"]), ("amount", "passthrough", ["amount"])])
    model = make_pipeline(steps, LogisticRegression()).fit(frame, target)
    skops.io.dump(model, file)
    return model.predict_proba


CITIES = pd.CategoricalDtype([" sp", "AT", "DE", "DE ", "x"])


@pytest.mark.parametrize(
    ("form", "train", "name"),
    [
        ("lightgbm", _boosted, "model.txt"),
        ("xgboost", _extreme, "model.json"),
        ("catboost", _hashed, "model.cbm"),
        ("sklearn", _encoded, "model.skops"),
    ],
)
def test_spaces_around_a_category_are_part_of_it_where_the_model_knows_it(
    tmp_path: Path, form: str, train: Any, name: str
) -> None:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"amount": rng.normal(size=900).round(3), "city": rng.choice(CITIES.categories, 900)})
    target = (frame.amount + 2 * (frame.city == "DE ") - 2 * (frame.city == " sp") + rng.normal(size=900) > 0) * 1
    predict = train(frame[:300], target[:300], tmp_path / name)
    frame.assign(y=target)[300:].to_csv(tmp_path / "rows.csv", index=False)
    words = ["--validation", str(tmp_path / "rows.csv"), "--label", "y", "--calibrator", "temperature"]
    result = CliRunner().invoke(
        app, [form, str(tmp_path / name), *words, "--name", "spaces", "--out", str(tmp_path)], env={"COLUMNS": "200"}
    )
    assert (result.exit_code, "does not know" in result.output) == (0, False), result.output + result.stderr
    cells = ["DE", "DE ", " sp", "x", " DE", "AT  "]
    exact = pd.DataFrame({"amount": 0.25, "city": [*cells[:4], "DE", "AT"]})
    sent = [{"amount": 0.25, "city": cell} for cell in cells]
    found = bundle.verify(tmp_path / "spaces" / "1")
    np.testing.assert_allclose(answers(found, sent), predict(exact), atol=1e-6)


def test_a_damaged_model_and_control_characters_in_a_header_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    frame = pd.DataFrame({"amount": rng.normal(size=300), "country": rng.choice(["AT", "DE", "FR"], 300)})
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "iterations": 5, "random_seed": 3}
    estimator = catboost.CatBoostClassifier(**quiet, cat_features=["country"], one_hot_max_size=4)
    estimator.fit(frame, frame.amount > 0).save_model(str(tmp_path / "model.cbm"))
    good = (tmp_path / "model.cbm").read_bytes()
    (tmp_path / "model.cbm").write_bytes(good.replace(b"country", b"count\xb6\xb6"))  # CatBoost loads it
    (tmp_path / "rows.csv").write_text("amo\x1b[31munt,country,fraud\n1,AT,0\n2,DE,1\n")

    def told() -> str:
        words = ["--name", "mine", "--validation", str(tmp_path / "rows.csv"), "--label", "fraud", "--dry-run"]
        result = CliRunner().invoke(app, ["catboost", str(tmp_path / "model.cbm"), *words])
        assert result.exit_code == 2, result.exception
        return " ".join(result.stderr.split())

    assert "its file may be damaged" in told()
    (tmp_path / "model.cbm").write_bytes(good)
    said = told()
    assert "amo\N{REPLACEMENT CHARACTER}[31munt" in said
    assert "\x1b" not in said
