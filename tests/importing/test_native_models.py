"""`candor import` with the library's own file: its answers decide whether a conversion tells the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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
