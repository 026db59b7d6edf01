"""Calibrating a bundle that is there already."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bundle
from bundle import LabelledLogits
from calibrators import Auto
from importing.cli import app
from training import ConfigurationError
from training.calibrate import calibrate, calibrate_bundle


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "digits" / "1"))


def test_a_new_version_differs_in_its_calibrator_alone(copied: Path) -> None:
    path = calibrate_bundle(copied, "histogram")
    assert path == copied.parent / "2"
    old, new = bundle.verify(copied), bundle.verify(path)
    assert new.calibrator.name == "histogram"
    assert new.model_digest == old.model_digest
    assert new.manifest.files["reference.npz"] == old.manifest.files["reference.npz"]
    assert new.manifest.files["golden.npz"] == old.manifest.files["golden.npz"]
    assert new.report["before"] == old.report["before"]
    assert new.report["training"] == old.report["training"]


def test_the_same_calibrator_changes_nothing_but_what_the_bundle_cannot_know(copied: Path) -> None:
    old, new = bundle.verify(copied), bundle.verify(calibrate_bundle(copied, "temperature"))
    differ = {name for name, digest in new.manifest.files.items() if digest != old.manifest.files[name]}
    assert differ == {"report/report.json"}
    assert new.report == {name: part for name, part in old.report.items() if name != "test"}


def test_an_imported_bundle_is_calibrated_as_well(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).random((200, 2)).round(3)
    rows = [f"{score},{'ok' if score < other else 'bad'}" for score, other in scores]
    (tmp_path / "rows.csv").write_text("\n".join(["score,outcome", *rows]))
    given = ["scores", str(tmp_path / "rows.csv"), "--name", "vendor", "--label", "outcome", "--score", "score"]
    given += ["--labels", "ok,bad", "--positive", "ok", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, given).exit_code == 0
    old, new = (
        bundle.verify(tmp_path / "vendor" / "1"),
        bundle.verify(calibrate_bundle(tmp_path / "vendor" / "1", "beta")),
    )
    assert (new.manifest.source, new.manifest.imported) == ("scores", old.manifest.imported)
    assert new.report["positive"]["label"] == "ok"


def test_a_bundle_under_another_name_is_refused(trained: Path, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(trained, tmp_path / "other" / "1"))
    with pytest.raises(ConfigurationError, match=r"'other'.*'digits'"):
        calibrate_bundle(elsewhere, "temperature")
    assert [entry.name for entry in elsewhere.parent.iterdir()] == ["1"]


def test_folds_keep_groups_together() -> None:
    # Ten copies of each of 40 rows: only rows that share a group may say so.
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (40, 3))
    labels = np.argmax(logits / 2 + rng.gumbel(size=(40, 3)), axis=1)
    rows = LabelledLogits(np.repeat(logits, 10, axis=0).astype(np.float32), np.repeat(labels, 10))
    grouped = replace(rows, group=np.repeat(np.arange(40), 10))
    found, alone = (calibrate("auto", one) for one in (grouped, rows))
    expected = Auto().fit_grouped(rows.logits, rows.labels, grouped.group)
    assert found.to_dict() == expected.to_dict() != alone.to_dict()
