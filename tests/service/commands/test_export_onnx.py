"""`candor export-onnx`: the file alone, in plain ONNX Runtime, gives what the service answers over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from training.data.drift import dim

from ..conftest import Digits, InThread, Spawn


def run(file: Path, images: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"input": images}), strict=True)), (
        session.get_modelmeta().custom_metadata_map
    )


def check(file: Path, images: np.ndarray, predictions: list[dict[str, Any]]) -> dict[str, str]:
    """The file's outputs are the service's answers; returns the file's metadata."""
    outputs, metadata = run(file, images)
    labels = json.loads(metadata["candor.labels"])
    assert list(outputs) == ["logits", "probabilities", "confidence", "label"]
    expected = np.array([[prediction["probabilities"][label] for label in labels] for prediction in predictions])
    np.testing.assert_allclose(outputs["probabilities"], expected, rtol=0, atol=1e-6)
    assert [labels[index] for index in outputs["label"]] == [prediction["label"] for prediction in predictions]
    confidence = [prediction["confidence"] for prediction in predictions]
    np.testing.assert_allclose(outputs["confidence"], confidence, rtol=0, atol=1e-6)
    return metadata


@pytest.mark.usefixtures("refits_here")
@pytest.mark.parametrize("method", ["temperature", "isotonic", "histogram", "structured_vector"])
def test_the_active_revision_beside_its_running_service(
    method: str, service: InThread, spawn: Spawn, digits: Digits, tmp_path: Path
) -> None:
    grainy = dim(digits.images, seed=7, noise=0.15)  # errors enough for every method, and a clear gain for the gate
    service.teach(grainy, digits.labels)
    report = service.recalibrate(mode="propose", calibrator=method, gate="non_inferior").json()
    revision = report.get("revision")
    assert revision is not None, report
    service.activate(revision)
    out = tmp_path / "calibrated.onnx"
    done = spawn.run("export-onnx", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"digits {revision}" in done.stdout
    metadata = check(out, digits.dimmed[800:1100], service.predict(digits.dimmed[800:1100]))
    active = service.runtime.models.get(None).served
    assert metadata["candor.revision"] == revision
    assert metadata["candor.calibrator"] == method
    assert metadata["candor.model_digest"] == digits.bundle.model_digest
    assert metadata["candor.calibrator_fingerprint"] == active.calibrator.fingerprint()


def test_a_named_revision_and_a_bundle_without_a_state(
    service: InThread, spawn: Spawn, digits: Digits, tmp_path: Path
) -> None:
    first, alone = tmp_path / "first.onnx", tmp_path / "alone.onnx"
    assert spawn.run("export-onnx", first, "--model", "digits", "--revision", "r1").returncode == 0
    nowhere = {"database_url": f"sqlite:///{tmp_path}/none.db"}
    done = spawn.run("export-onnx", alone, "--bundle", digits.root / "digits" / "1", **nowhere)
    assert (done.returncode, done.stderr) == (0, "")
    predictions = service.predict(digits.images[:100])
    assert check(first, digits.images[:100], predictions)["candor.revision"] == "r1"
    assert check(alone, digits.images[:100], predictions)["candor.revision"] == ""
    assert not (tmp_path / "none.db").exists()


def test_a_file_of_before_stays_when_the_export_fails(spawn: Spawn, service: InThread, tmp_path: Path) -> None:
    out = tmp_path / "calibrated.onnx"
    out.write_text("before")
    for arguments, said in (
        (("--revision", "r99"), "r99"),
        (("--model", "cats"), "has no model 'cats'"),
        (("--bundle", tmp_path), "cannot be used"),
        (("--bundle", tmp_path, "--revision", "r1"), "Leave out"),
    ):
        done = spawn.run("export-onnx", out, *arguments)
        assert done.returncode == 2, done.stdout
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert out.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == set()


def test_without_a_state_it_says_what_is_missing(spawn: Spawn, tmp_path: Path) -> None:
    done = spawn.run("export-onnx", tmp_path / "a.onnx")
    assert done.returncode == 2
    assert "no file" in done.stderr
    assert not (tmp_path / "state.db").exists()
