"""`candor import` with the library's own file: its answers decide whether a conversion tells the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import skl2onnx
import skops.io
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import bundle
from importing.cli import app

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
