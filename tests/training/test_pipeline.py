"""From configuration to bundle."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bundle
from training import ConfigurationError, DivergedError, TrainConfig, train_bundle
from training.data import DATASETS, Dataset
from training.losses import LOSSES, cross_entropy


def test_the_bundle_says_how_it_came_about(trained_bundle: bundle.Bundle, tiny: TrainConfig) -> None:
    manifest = trained_bundle.manifest
    assert (manifest.model, manifest.version) == ("digits", 1)
    assert manifest.labels == tuple("0123456789")
    assert manifest.input == bundle.InputSpec(kind="image", dtype="uint8", shape=(8, 8, 1))
    assert (manifest.architecture.name, manifest.architecture.parameters) == ("lenet5", 61_706)
    assert manifest.training.loss.name == "cross_entropy"
    assert (manifest.training.seed, manifest.training.epochs) == (tiny.seed, tiny.epochs)
    assert set(manifest.versions) >= {"candor", "torch", "onnxruntime", "numpy", "python"}
    assert set(trained_bundle.diagrams) == {
        f"{kind}-{side}" for kind in ("reliability", "confidence") for side in ("before", "after")
    }
    assert len(trained_bundle.report["training"]["epochs"]) == tiny.epochs


def test_the_rows_outside_the_bundle_are_reported_apart(trained_bundle: bundle.Bundle, tiny: TrainConfig) -> None:
    test = trained_bundle.report["test"]
    assert test["rows"] == 1797 - tiny.train_rows - tiny.reference_rows
    assert test["before"].keys() == trained_bundle.report["before"].keys()
    assert test["difference"]["nll"]["low"] < test["difference"]["nll"]["high"]


def test_the_split_is_recorded_and_can_be_made_again(trained_bundle: bundle.Bundle, tiny: TrainConfig) -> None:
    data, parts = tiny.load()
    for name, part in trained_bundle.manifest.training.splits.items():
        rows = getattr(parts, name)
        assert part.rows == len(rows)
        assert part.sha256 == hashlib.sha256(rows.tobytes()).hexdigest()
    for name in ("fit", "certify", "gate"):
        np.testing.assert_array_equal(getattr(trained_bundle.reference, name).labels, data.labels[getattr(parts, name)])


def test_the_same_seed_gives_the_same_files(trained_bundle: bundle.Bundle, tiny: TrainConfig, tmp_path: Path) -> None:
    again = bundle.verify(train_bundle(tiny, tmp_path))
    assert again.manifest.files == trained_bundle.manifest.files


def test_interrupted_training_writes_nothing(tiny: TrainConfig, tmp_path: Path) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_bundle(tiny, tmp_path / "out", on_epoch=interrupt)
    assert not (tmp_path / "out").exists()


def test_a_bundle_that_cannot_be_written_costs_no_training(
    tiny: TrainConfig, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    keep, seen = tmp_path / "checkpoint", list[int]()
    with monkeypatch.context() as patched:
        patched.setattr(bundle, "write", full)
        with pytest.raises(OSError, match="No space left"):
            train_bundle(tiny, tmp_path / "out", keep=keep)
    path = train_bundle(tiny, tmp_path / "out", keep=keep, on_epoch=lambda epoch: seen.append(epoch.number))
    assert seen == []
    assert not keep.exists()
    assert (path / "model.onnx").read_bytes() == (trained / "model.onnx").read_bytes()


def test_diverged_training_writes_nothing(tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "broken", lambda logits, labels: cross_entropy(logits, labels) * float("nan"))
    with pytest.raises(DivergedError):
        train_bundle(replace(tiny, loss="broken"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_data_set_is_read_once(tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits, times = DATASETS["digits"], []

    def counted() -> Dataset:
        times.append(1)
        return digits()

    monkeypatch.setitem(DATASETS, "digits", counted)
    train_bundle(replace(tiny, epochs=1), tmp_path / "out", weights=tmp_path / "weights.npz", allow_poor=True)
    assert len(times) == 1


def test_a_file_of_others_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "vit.safetensors").write_bytes(b"pretrained")
    with pytest.raises(ConfigurationError, match=r"vit\.safetensors exists and does not contain weights"):
        train_bundle(
            TrainConfig(dataset="digits", epochs=10**9), tmp_path / "out", weights=tmp_path / "vit.safetensors"
        )
    assert (tmp_path / "vit.safetensors").read_bytes() == b"pretrained"


@pytest.mark.parametrize("root", ["a file", "a file/below/it", "/proc/none/here"])
def test_a_folder_that_cannot_be_written_is_refused_before_training(root: str, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(ConfigurationError, match=r"cannot be written \(.+: .+\), expected a folder for new bundles"):
        train_bundle(TrainConfig(dataset="digits", epochs=10**9), tmp_path / root)
