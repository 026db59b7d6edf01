"""The tour of the calibrators runs on a real network's logits, and its results hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S
from training import TrainConfig, train_bundle

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("tour")
    bundle, out = train_bundle(TrainConfig(seed=9), folder), folder / "out"
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error::RuntimeWarning",
            "examples/calibrate_digits.py",
            str(bundle),
            str(folder / "out"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, out


def row(text: str, method: str) -> list[float]:
    line = next(line for line in text.splitlines() if line.startswith(f"{method} "))
    return [float(number) for number in re.findall(r"(?<![\w])[-+]?\d+\.\d+", line)]


def test_temperature_mends_the_log_loss_and_keeps_the_accuracy(tour: tuple[str, Path]) -> None:
    before, after = row(tour[0], "identity"), row(tour[0], "temperature")
    assert after[0] == before[0]
    assert after[5] < before[5]
    assert after[7] < after[8] < 0, "the paired interval excludes no difference"


def test_an_ece_stands_beside_its_null(tour: tuple[str, Path]) -> None:
    _, error, null, quantile, p_value = row(tour[0], "identity")[:5]
    assert null < quantile < error
    assert p_value < 0.05


def test_auto_reports_its_candidates(tour: tuple[str, Path]) -> None:
    text = tour[0].partition("The choice of auto")[2]
    for name in ("identity", "temperature", "ensemble_temperature", "structured_vector"):
        assert len(row(text, name)) == 3
    assert "within one standard error of the best" in text


def test_the_dim_camera_gets_another_temperature(tour: tuple[str, Path]) -> None:
    found = {name: float(value) for name, value in re.findall(r"^(bright|dim|all rows): T = ([\d.]+)$", tour[0], re.M)}
    assert found["dim"] < found["all rows"] < found["bright"]


def test_thresholds_agree_on_both_scales(tour: tuple[str, Path]) -> None:
    assert re.findall(r"both scales agree on ([\d.]+)%", tour[0]) == ["100.00"] * 3
    assert float(re.search(r"largest difference: (\S+)", tour[0])[1]) < 1e-14


def test_the_pictures_are_there(tour: tuple[str, Path]) -> None:
    for name in ("reliability-before", "reliability-after", "confidence-before", "confidence-after"):
        assert "<svg" in (tour[1] / f"{name}.svg").read_text()


def test_without_a_bundle_it_says_how_to_make_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "examples/calibrate_digits.py", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode != 0
    assert "make train" in done.stderr
