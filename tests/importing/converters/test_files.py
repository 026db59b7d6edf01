"""A pickle is refused by what it holds, whatever its name."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from typer.testing import CliRunner

from importing.cli import app
from importing.converters import CONVERTERS
from importing.errors import UnsafeFileError
from tests.memory import most_traced

from .. import graphs

OBJECT = {"weights": [1.0, 2.0]}


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(OBJECT))


def written(function: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(function(pickle.dumps(OBJECT)))


WRITERS: dict[str, Callable[[Path], Any]] = {
    "pickle": written(bytes),
    "protocol 2": lambda path: path.write_bytes(pickle.dumps(OBJECT, protocol=2)),
    "joblib": lambda path: joblib.dump(OBJECT, path),
    "joblib-zlib": lambda path: joblib.dump(OBJECT, path, compress=3),
    "zlib": written(zlib.compress),
    "gzip": written(gzip.compress),
    "bz2": written(bz2.compress),
    "xz": written(lzma.compress),
    "zip": zipped,
}


@pytest.mark.parametrize("library", CONVERTERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_pickle_is_refused(tmp_path: Path, library: str, writer: str) -> None:
    WRITERS[writer](tmp_path / "model.json")
    with pytest.raises(UnsafeFileError, match=r"reading a pickle runs the code.*candor\.import_model\("):
        CONVERTERS[library](tmp_path / "model.json")


def refused(*words: str, rows: Path) -> str:
    rows.write_text("a,y\n" + "1,0\n2,1\n" * 20)
    result = CliRunner().invoke(app, [*words, "--name", "mine", "--validation", str(rows), "--label", "y"])
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


@pytest.mark.parametrize("writer", WRITERS)
def test_an_import_of_onnx_names_the_function_for_pickles(tmp_path: Path, writer: str) -> None:
    WRITERS[writer](tmp_path / "model.onnx")
    told = refused("onnx", str(tmp_path / "model.onnx"), rows=tmp_path / "rows.csv")
    assert "Reading a pickle runs the code in it." in told
    assert "candor.import_model(model, X, y, name=…, out=…)" in told


@pytest.mark.parametrize(
    ("name", "otherwise"),
    [
        ("model.pkl", "a pickle by its name"),
        ("model.txt", "Not a model of LightGBM"),
        ("model", "Unknown format of the native model."),
    ],
)
def test_a_pickle_as_the_native_model_names_the_function(tmp_path: Path, name: str, otherwise: str) -> None:
    (tmp_path / "model.onnx").write_bytes(graphs.logits())
    WRITERS["joblib"](tmp_path / name)
    options = "--native", str(tmp_path / name)
    told = refused("onnx", str(tmp_path / "model.onnx"), *options, rows=tmp_path / "rows.csv")
    assert "candor.import_model(model, X, y, name=…, out=…)" in told
    (tmp_path / name).write_text("no pickle")
    assert otherwise in refused("onnx", str(tmp_path / "model.onnx"), *options, rows=tmp_path / "rows.csv")


@pytest.mark.parametrize("library", ["onnx", *CONVERTERS])
def test_zeros_without_end_are_refused_unread(tmp_path: Path, library: str) -> None:
    with (tmp_path / "model").open("wb") as file:
        file.truncate(2**31 + 1)  # a sparse file: it takes no space
    told = refused(library, str(tmp_path / "model"), rows=tmp_path / "rows.csv")
    assert "The model's file is too large." in told
    assert "found: 2,147,483,649 bytes expected: at most 2,147,483,648" in told


@pytest.mark.parametrize("library", CONVERTERS)
def test_a_file_that_no_library_wrote_is_not_read_into_memory(tmp_path: Path, library: str) -> None:
    with (tmp_path / "model").open("wb") as file:
        file.truncate(2**26)
    arguments = library, str(tmp_path / "model")
    assert "not a " in refused(*arguments, rows=tmp_path / "rows.csv").lower()
    assert most_traced(lambda: refused(*arguments, rows=tmp_path / "rows.csv")) < 2**24


@pytest.mark.parametrize("name", ["model.pkl", "model.JOBLIB"])
def test_the_oldest_pickles_are_refused_by_their_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(OBJECT, protocol=0))
    with pytest.raises(UnsafeFileError, match="a pickle by its name"):
        CONVERTERS["lightgbm"](tmp_path / name)


@pytest.mark.parametrize("damage", [slice(0, -200), slice(0, 20)])
@pytest.mark.parametrize("name", ["model.json", "model.ubj"])
def test_a_damaged_file_of_xgboost_is_told_in_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, damage: slice
) -> None:
    xgboost = pytest.importorskip("xgboost")
    rows = np.arange(40.0)[:, None]
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(rows, rows[:, 0] > 20), 3)
    booster.save_model(tmp_path / name)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[damage])
    told = refused("xgboost", str(tmp_path / name), rows=tmp_path / "rows.csv")
    assert "XGBoost cannot read the model" in told
    assert [word for word in ("Stack trace", ".cc:", ".h:", "/src/") if word in told] == []
    assert capfd.readouterr() == ("", "")
