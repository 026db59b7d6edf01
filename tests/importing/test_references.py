"""Models by reference: URLs, folders of MLflow, digests; and remotes that mean harm."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bundle as bundles
from bundle import remote
from importing import references
from importing.cli import app
from tests import mlflow_store
from tests.hub import hub

from . import graphs

ROWS = 240
MODEL = graphs.logits()
DIGEST = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing stays in the folder of temporary files, whatever happens."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.glob("candor-import-*")) == []


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(4)
    table = random.normal(size=(ROWS, 3)).astype(np.float32)
    scores = table @ graphs.WEIGHTS
    drawn = np.argmax(scores + random.gumbel(size=scores.shape), axis=1)
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["a", "b", "c", "y"], *([*map(float, row), label] for row, label in zip(table, drawn, strict=True))]
        )
    return path


@pytest.fixture
def run(tmp_path: Path, rows: Path) -> Callable[..., tuple[int, str, Path]]:
    def call(file_format: str, model: str, *options: str) -> tuple[int, str, Path]:
        fixed = ["--name", "mine", "--validation", str(rows), "--label", "y", "--calibrator", "temperature"]
        result = CliRunner().invoke(app, [file_format, model, *fixed, "--out", str(tmp_path / "out"), *options])
        told = re.sub(r"\s+", " ", result.output + result.stderr)
        return result.exit_code, told, tmp_path / "out" / "mine" / "1"

    return call


ON_A_HUB = """
from bundle import BundleError, remote
from importing.cli import app
print(remote.names("hf://org/mine"))
try:
    remote.read("hf://org/mine/other.onnx", limit=1)
except BundleError as error:
    print(error)
app()
"""


def test_a_repository_of_a_hub_is_listed_and_its_model_imported(rows: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    fixed = ["--name", "mine", "--validation", str(rows), "--label", "y", "--calibrator", "temperature"]
    words = ["onnx", f"hf://org/mine/model.onnx@sha256:{DIGEST}", *fixed, "--out", str(tmp_path / "out")]
    with hub("org/mine", {"config.json": b"{}", "model.onnx": MODEL}) as endpoint:
        environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home")}  # read at its import
        done = subprocess.run([sys.executable, "-c", ON_A_HUB, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "['config.json', 'model.onnx']\nhf://org/mine/other.onnx: no such file" in done.stdout
    assert bundles.verify(tmp_path / "out" / "mine" / "1").model_bytes == MODEL


def test_a_url_with_its_digest_is_imported(run: Any, memory: Any) -> None:
    memory.pipe("/models/mine.onnx", MODEL)
    code, told, path = run("onnx", f"memory://models/mine.onnx@sha256:{DIGEST}")
    assert code == 0, told
    record = bundles.verify(path).manifest.imported
    assert record is not None
    assert (record.source, record.source_sha256) == ("mine.onnx", DIGEST)


@pytest.mark.parametrize("option", [True, False])
def test_another_content_than_the_pinned_one_is_refused(run: Any, memory: Any, tmp_path: Path, option: bool) -> None:
    memory.pipe("/models/mine.onnx", MODEL + b"\x32\x01x")
    (tmp_path / "mine.onnx").write_bytes(MODEL + b"\x32\x01x")
    for address in ("memory://models/mine.onnx", str(tmp_path / "mine.onnx")):
        code, told, path = run("onnx", *([address, "--sha256", DIGEST] if option else [f"{address}@sha256:{DIGEST}"]))
        assert (code, "differs from its pinned digest" in told, path.exists()) == (2, True, False), told


def test_wrong_digests_and_addresses_are_named(run: Any, memory: Any) -> None:
    memory.pipe("/models/mine.onnx", MODEL)
    for address, options, expected in (
        ("memory://models/mine.onnx", ["--sha256", "12"], "64 hex digits"),
        (f"memory://models/mine.onnx@sha256:{64 * 'a'}", ["--sha256", DIGEST], "pinned to two digests"),
        ("memory://models/none.onnx", [], "No such file"),
        ("nowhere.onnx", [], "No such file or folder"),
        ("s3://bucket/mine.onnx", [], "Refused: s3:// requires another package. where: s3://bucket/mine.onnx"),
        ("s3://bucket/mine.onnx", [], "pip install s3fs"),
        ("oci://registry/mine", [], "Not the address of an artifact"),
    ):
        code, told, path = run("onnx", address, *options)
        assert (code, expected in told, path.exists()) == (2, True, False), told


def test_a_file_without_end_is_not_kept(run: Any, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references._single, "__kwdefaults__", {"limit": 1000})
    memory.pipe("/models/mine.onnx", MODEL + bytes(1000))
    code, told, _ = run("onnx", "memory://models/mine.onnx")
    assert (code, "Too large" in told) == (2, True)


def test_the_model_of_an_artifact_is_the_only_file_that_may_be_one(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"mine.onnx": MODEL, "README.md": b""}

    class Pushed:  # tests/bundle/test_registry.py reads real ones
        def __init__(self, address: str) -> None: ...

        def pull(self, folder: Path, **_: Any) -> Path:
            for name, content in files.items():
                (folder / name).write_bytes(content)
            return folder

    monkeypatch.setattr(references, "Artifact", Pushed)
    code, told, path = run("onnx", f"oci://host/mine@sha256:{64 * 'a'}", "--sha256", DIGEST)
    assert (code, path.exists()) == (0, True), told
    files["other.onnx"] = MODEL
    code, told, _ = run("onnx", "oci://host/mine:1")
    assert (code, "README.md, mine.onnx, other.onnx" in told, "one file *.onnx" in told) == (2, True, True), told


def test_an_interrupted_transfer_is_not_kept(run: Any, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: Any, **__: Any) -> Iterator[bytes]:
        yield MODEL[:100]
        raise bundles.RemoteError("cut off")

    monkeypatch.setattr(remote, "_chunks", cut)
    code, told, path = run("onnx", "memory://models/mine.onnx")
    assert (code, "Cut off" in told, path.exists()) == (2, True, False)


ONNX = "flavors:\n  onnx: {data: model.onnx, onnx_version: 1.19.0}\n  python_function: {loader_module: mlflow.onnx}\n"


def test_folders_of_mlflow_are_imported_from_both_places(run: Any, memory: Any, tmp_path: Path) -> None:
    files = {"MLmodel": ONNX.encode(), "model.onnx": MODEL, "python_env.yaml": b"", "model.pkl": b"never fetched"}
    (tmp_path / "logged").mkdir()
    for name, content in files.items():
        memory.pipe(f"/logged/{name}", content)
        (tmp_path / "logged" / name).write_bytes(content)
    for address in ("memory://logged", str(tmp_path / "logged")):
        code, told, path = run("mlflow", f"{address}@sha256:{DIGEST}")
        assert code == 0, told
        record = bundles.verify(path).manifest.imported
        assert record is not None
        assert (record.format, record.source_sha256) == ("onnx", DIGEST)


def test_a_registered_model_is_fetched_by_mlflow(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "MLmodel").write_text(ONNX)
    (saved / "model.onnx").write_bytes(MODEL)
    client = mlflow_store.client(tmp_path / "store", monkeypatch)
    mlflow_store.register(client, "fraud", "champion", saved)
    code, told, path = run("mlflow", f"models:/fraud@champion@sha256:{DIGEST}")
    assert code == 0, told
    record = bundles.verify(path).manifest.imported
    assert record is not None
    assert record.options["files"] == {"MLmodel": hashlib.sha256(ONNX.encode()).hexdigest()}
    (saved / "model.onnx").write_bytes(MODEL + b"\x32\x01x")
    mlflow_store.register(client, "fraud", "challenger", saved)
    for address, expected in (
        (f"models:/fraud@challenger@sha256:{DIGEST}", "differs from its pinned digest"),
        ("models:/fraud@nobody", "alias nobody not found"),
    ):
        code, told, _ = run("mlflow", address)
        assert (code, expected in told) == (2, True), told
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    code, told, _ = run("mlflow", "models:/fraud@champion")
    assert (code, "address of its server is not set" in told) == (2, True), told
    assert not (tmp_path / "mlflow.db").exists()
    monkeypatch.setitem(sys.modules, "mlflow.artifacts", None)
    code, told, _ = run("mlflow", "models:/fraud@champion")
    assert (code, "pip install mlflow-skinny" in told) == (2, True)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost", "sklearn"])
def test_models_of_each_flavour_are_read(run: Any, tmp_path: Path, rows: Path, library: str) -> None:
    values = np.loadtxt(rows, delimiter=",", skiprows=1)
    x, y = values[:, :3], values[:, 3].astype(int)
    folder = tmp_path / "logged"
    folder.mkdir()
    names = ["a", "b", "c"]
    if library == "lightgbm":
        import lightgbm

        data = lightgbm.Dataset(x, y, feature_name=names)
        lightgbm.train({"objective": "binary", "verbosity": -1, "num_threads": 1}, data, 5).save_model(
            folder / "model.lgb"
        )
        flavour = "{data: model.lgb}"
    elif library == "xgboost":
        import xgboost

        matrix = xgboost.DMatrix(x, y, feature_names=names)
        xgboost.train({"objective": "binary:logistic", "nthread": 1}, matrix, 5).save_model(folder / "model.ubj")
        flavour = "{data: model.ubj, model_format: ubj}"
    elif library == "sklearn":
        import skops.io
        from sklearn.linear_model import LogisticRegression

        skops.io.dump(LogisticRegression().fit(x, y), folder / "model.skops")
        flavour = "{pickled_model: model.skops, serialization_format: skops}"
    else:
        import catboost

        model = catboost.CatBoostClassifier(iterations=5, thread_count=1, verbose=False, allow_writing_files=False)
        model.fit(catboost.Pool(x, y, feature_names=names)).save_model(str(folder / "model.cb"))
        flavour = "{data: model.cb, save_format: cbm}"
    (folder / "MLmodel").write_text(f"flavors:\n  {library}: {flavour}\n")
    code, told, path = run("mlflow", str(folder))
    assert code == 0, told
    record = bundles.verify(path).manifest.imported
    assert record is not None
    assert (record.format, record.native is not None) == (library, True)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("flavors: {sklearn: {pickled_model: model.pkl}}", "candor.import_model"),
        ("flavors: {lightgbm: {data: model.pkl}}", "candor.import_model"),
        ("flavors: {sklearn: {pickled_model: model.skops, serialization_format: skops}}", "No such file"),
        ("flavors: {lightgbm: {data: model.skops}}", "No such file"),
        ("flavors: {python_function: {loader_module: mine}}", "no flavour that can be imported"),
        ("flavors: {onnx: {data: ../model.onnx}}", "outside its folder"),
        ("flavors: {onnx: {data: /etc/passwd}}", "outside its folder"),
        ("flavors: {onnx: {data: link.onnx}}", "outside its folder"),
        ("flavors: {onnx: {data: [1]}}", "outside its folder"),
        ("flavors: {onnx: {data: none.onnx}}", "No such file"),
        ("flavors: [onnx]", "names no flavours"),
        ("a: &a [1, 1]\nb: &b [*a, *a]\nflavors: {onnx: *b}", "not written by MLflow"),
        ("flavors: {onnx: !!python/object/apply:os.system [true]}", "Not valid YAML"),
        ("{", "Not valid YAML"),
        ("[" * 5000, "not written by MLflow"),
    ],
)
def test_other_folders_are_refused(run: Any, tmp_path: Path, written: str, told: str) -> None:
    folder = tmp_path / "logged"
    folder.mkdir()
    (folder / "MLmodel").write_text(written)
    (folder / "model.pkl").write_bytes(b"\x80\x04.")
    (tmp_path / "model.onnx").write_bytes(MODEL)
    (folder / "link.onnx").symlink_to(tmp_path / "model.onnx")
    code, said, path = run("mlflow", str(folder))
    assert (code, told in said, path.exists()) == (2, True, False), said
