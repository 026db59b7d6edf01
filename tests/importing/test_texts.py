"""Text models from one command to a bundle: an ONNX file with its tokenizer.json, or a folder of optimum."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bundle as bundles
from importing.cli import app
from importing.errors import AmbiguousModelError, ImportRefusedError, UnsafeFileError, UnsupportedModelError
from importing.huggingface import read_export
from tests import complaints

from . import graphs


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    texts, labels = complaints.texts(240)
    texts[:3] = ["", "007", "The bill, again"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["body", "label", "channel"])
        writer.writerows(zip(texts, labels, ["mail", "chat"] * 120, strict=True))
    return path


@pytest.fixture
def run(tmp_path: Path, rows: Path) -> Callable[..., tuple[Any, Path]]:
    def call(kind: str, model: Path, *options: str) -> tuple[Any, Path]:
        fixed = ["--name", "mine", "--validation", str(rows), "--label", "label", "--calibrator", "temperature"]
        result = CliRunner().invoke(app, [kind, str(model), *fixed, "--out", str(tmp_path / "bundles"), *options])
        return result, tmp_path / "bundles" / "mine" / "1"

    return call


def check(path: Path, length: int) -> bundles.Bundle:
    """Check that the golden texts give what tokenizer and ONNX Runtime give by hand."""
    found = bundles.verify(path)
    texts = [example.text for example in found.golden.texts]
    assert len(texts) == len(found.golden.logits) > 3
    np.testing.assert_allclose(found.golden.logits, complaints.logits_by_hand(texts, length), atol=1e-6)
    assert found.tokenizer is not None
    assert found.tokenizer.dump() == complaints.tokenizer_json()
    assert found.manifest.input.tensors[0].shape == (length,)
    return found


def test_an_onnx_file_with_its_tokenizer(tmp_path: Path, run: Any) -> None:
    (tmp_path / "model.onnx").write_bytes(complaints.classifier())
    (tmp_path / "tokenizer.json").write_bytes(complaints.tokenizer_json())
    options = ["--tokenizer", str(tmp_path / "tokenizer.json")]
    result, path = run("onnx", tmp_path / "model.onnx", *options, "--text", "body", "--max-length", "12")
    assert result.exit_code == 0, result.output
    assert "column body, 12 tokens each" in result.output
    assert "rows without a text: 1 of 240" in result.output
    assert "like an identifier" not in result.output
    found = check(path, 12)
    assert found.manifest.labels == complaints.LABELS
    assert found.manifest.graph is not None
    assert found.manifest.graph.mask == "attention_mask"


def test_padding_is_left_out_of_runs(tmp_path: Path, run: Any) -> None:
    result, path = run("huggingface", complaints.folder(tmp_path / "export"), "--text", "body")
    assert "Padding is left out" in result.output
    found = bundles.verify(path)
    graph, tokenizer = found.manifest.graph, found.tokenizer
    assert graph is not None
    assert tokenizer is not None
    for texts, length in ((["the bill"], 8), (["the bill", "a b c d e f g h i j k l m n o p q r s t"], 16)):
        feeds = graph.feeds(tokenizer.encode(texts))
        assert {values.shape for values in feeds.values()} == {(len(texts), length)}
        assert all(values.flags.c_contiguous for values in feeds.values())


def test_padding_stays_where_the_model_sees_it(tmp_path: Path, run: Any) -> None:
    folder = complaints.folder(tmp_path / "export")
    (folder / "model.onnx").write_bytes(complaints.classifier(counting=True))
    result, path = run("huggingface", folder, "--text", "body")
    assert result.exit_code == 0, result.output
    assert "Padding is left out" not in result.output
    graph = bundles.verify(path).manifest.graph
    assert graph is not None
    assert graph.mask is None


def test_a_folder_of_optimum(tmp_path: Path, run: Any) -> None:
    result, path = run("huggingface", complaints.folder(tmp_path / "export"), "--drop", "channel")
    assert result.exit_code == 0, result.output
    found = check(path, complaints.LENGTH)
    assert found.manifest.labels == complaints.LABELS
    assert found.manifest.imported is not None
    assert found.manifest.imported.format == "huggingface"
    files = found.manifest.imported.options["files"]
    assert isinstance(files, dict)
    assert {"config.json", "tokenizer.json"} <= files.keys()
    assert files["tokenizer.json"] == hashlib.sha256(complaints.tokenizer_json()).hexdigest()


def test_labels_may_be_numbers_of_the_classes(tmp_path: Path, rows: Path) -> None:
    text = rows.read_text()
    for number, label in enumerate(complaints.LABELS):
        text = re.sub(rf",{label},", f",{number},", text)
    numbered = tmp_path / "numbered.csv"
    numbered.write_text(text)
    folder = complaints.folder(tmp_path / "export")
    options = ["--name", "mine", "--validation", str(numbered), "--label", "label", "--text", "body", "--dry-run"]
    result = CliRunner().invoke(app, ["huggingface", str(folder), *options])
    assert result.exit_code == 0, result.output
    assert "Dry run" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--text COLUMN"),
        (["--text", "bdy"], "Did you mean `body`?"),
        (["--text", "body", "--max-length", "2"], "no room for a text"),
    ],
)
def test_what_is_not_clear_is_asked(tmp_path: Path, run: Any, options: list[str], message: str) -> None:
    result, path = run("huggingface", complaints.folder(tmp_path / "export"), *options)
    assert result.exit_code == 2
    assert message in re.sub(r"\s+", " ", result.output).lower() + result.output
    assert not path.exists()


def test_a_graph_that_fixes_its_length_keeps_it(tmp_path: Path, run: Any) -> None:
    folder = complaints.folder(tmp_path / "export")
    (folder / "model.onnx").write_bytes(complaints.classifier(20))
    result, path = run("huggingface", folder, "--text", "body")
    assert result.exit_code == 0, result.output
    check(path, 20)


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path: Path, run: Any) -> None:
    folder = complaints.folder(tmp_path / "export")
    (folder / "model.onnx").write_bytes(graphs.logits())
    result, _ = run("huggingface", folder, "--text", "body")
    assert result.exit_code == 2
    assert "Token ids are whole numbers" in result.output


def test_files_and_folders_are_told_apart(tmp_path: Path, run: Any) -> None:
    folder = complaints.folder(tmp_path / "export")
    assert "The model is a folder" in run("onnx", folder)[0].output
    assert "The model is a file" in run("huggingface", folder / "model.onnx")[0].output
    for option in (["--tokenizer", str(folder / "config.json")], ["--text", "age"], ["--max-length", "5"]):
        assert f"{option[0]} belongs to" in run("lightgbm", folder / "model.onnx", *option)[0].output


IMAGES = {
    "do_rescale": True,
    "rescale_factor": 0.00392156862745098,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.2, 0.3],
    "size": {"height": 6, "width": 8},
}


def written(folder: Path, **files: Any) -> Path:
    folder.mkdir()
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_json", ".json").replace("_onnx", ".onnx")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def test_a_folder_of_an_image_classifier_says_how_pixels_enter(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", onnx__model_onnx=b"", preprocessor_config_json=IMAGES)
    export = read_export(folder)
    assert export.model == folder / "onnx" / "model.onnx"
    assert export.labels is export.texts is None
    assert export.image is not None
    assert (export.image.mean, export.image.deviation) == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.3))
    assert (export.image.scale, export.image.size, export.notes) == (pytest.approx(1 / 255), (6, 8), ())
    cropped = {**IMAGES, "do_center_crop": True, "crop_size": 5, "size": {"shortest_edge": 7}, "do_normalize": False}
    export = read_export(written(tmp_path / "b", model_onnx=b"", preprocessor_config_json=cropped))
    assert export.image is not None
    assert (export.image.mean, export.image.size, len(export.notes)) == ((), (5, 5), 1)


@pytest.mark.parametrize(
    ("files", "kind", "message"),
    [
        ({"pytorch_model.bin": b"\x80\x04"}, UnsafeFileError, r"pytorch_model\.bin.*optimum-cli export onnx"),
        ({"model.safetensors": b""}, UnsupportedModelError, r"model\.safetensors.*optimum-cli export onnx"),
        ({}, UnsupportedModelError, "no ONNX file"),
        ({"a_onnx": b"", "b_onnx": b""}, AmbiguousModelError, r"a\.onnx, b\.onnx"),
        ({"model_onnx": b"", "config_json": b"{"}, UnsupportedModelError, "not valid JSON"),
        ({"model_onnx": b"", "config_json": b"[" * 100_000}, UnsupportedModelError, "not valid JSON"),
        ({"model_onnx": b"", "config_json": b"[]"}, UnsupportedModelError, "the wrong form"),
        ({"model_onnx": b"", "config_json": b" " * (2**24 + 1)}, UnsupportedModelError, "too large"),
        ({"model_onnx": b"", "config_json": {"id2label": {"0": "a", "2": "b"}}}, UnsupportedModelError, "id2label"),
        ({"model_onnx": b"", "config_json": {"id2label": ["a", "b"]}}, UnsupportedModelError, "id2label"),
        ({"model_onnx": b"", "config_json": {"id2label": {"0": "a", "1": "a"}}}, UnsupportedModelError, "id2label"),
        (
            {"model_onnx": b"", "config_json": {"problem_type": "multi_label_classification"}},
            UnsupportedModelError,
            "one class per example",
        ),
        ({"model_onnx": b"", "vocab.txt": b"a"}, UnsupportedModelError, r"no tokenizer\.json"),
        (
            {"model_onnx": b"", "preprocessor_config_json": {"image_mean": ["x"], "image_std": [1]}},
            UnsupportedModelError,
            "how images enter",
        ),
        (
            {"model_onnx": b"", "preprocessor_config_json": {"size": {"longest_edge": 3}}},
            UnsupportedModelError,
            "how images enter",
        ),
    ],
)
def test_what_a_folder_lacks_is_said(
    tmp_path: Path, files: dict[str, Any], kind: type[ImportRefusedError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        read_export(written(tmp_path / "export", **files))


def test_lengths_without_a_limit_are_limited(tmp_path: Path) -> None:
    folder = complaints.folder(tmp_path / "export", max_position_embeddings=None)
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 1e30}))
    texts = read_export(folder).texts
    assert texts is not None
    assert texts.length == 512


def test_neither_torch_nor_transformers_is_imported() -> None:
    code = "import importing.huggingface, importing.steps, sys; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
