"""Keeping a trained network and exporting it later."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bundle
from training import ConfigurationError, TrainConfig
from training.cli import app
from training.console import USAGE
from training.threads import available_threads
from training.trained import learn, load, save


@pytest.fixture(scope="module")
def weights(tiny: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "digits.npz"
    save(learn(tiny), path)
    return path


def test_round_trip(weights: Path, tiny: TrainConfig) -> None:
    trained = load(weights)
    told = {"model": "lenet5", "calibrator": "temperature", "validation_rows": 0, "threads": available_threads()}
    assert trained.config == replace(tiny, **told)
    assert len(trained.outcome.epochs) == tiny.epochs
    assert not trained.module.training
    assert [entry.name for entry in weights.parent.iterdir()] == [weights.name]


def test_an_export_gives_the_files_that_training_gave(
    weights: Path, trained_bundle: bundle.Bundle, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["export", str(weights), "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0
    exported = bundle.verify(Path(json.loads(result.stdout)["bundle"]))
    assert exported.manifest.files == trained_bundle.manifest.files


@pytest.mark.parametrize("kind", ["missing", "text", "pickle", "archive", "cut"])
def test_other_files_are_refused(weights: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.npz"
    if kind == "text":
        path.write_text("weights")
    elif kind == "pickle":
        np.savez(path, document=np.array([{}], object))
    elif kind == "archive":
        np.savez(path, document=np.frombuffer(b'{"config": {"color": 1}, "history": []}', np.uint8))
    elif kind == "cut":
        path.write_bytes(weights.read_bytes()[:-100])
    result = CliRunner().invoke(app, ["export", str(path), "--out", str(tmp_path / "out")])
    assert result.exit_code == USAGE
    assert "candor-train saved" in result.stderr
    assert "unsafely" not in result.stderr  # as NumPy advises
    assert not (tmp_path / "out").exists()


def test_coefficients_that_the_loss_does_not_have(tiny: TrainConfig) -> None:
    with pytest.raises(ConfigurationError, match="gamma"):
        learn(replace(tiny, coefficients={"gamma": 1.0}))
