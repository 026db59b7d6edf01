"""`candor-train study`: studies are found in a checkout, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from training.cli import app
from training.console import USAGE

ROOT = Path(__file__).parents[2]


def test_a_checkout_lists_the_cells_of_a_study(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["study", "lenet-birdcat", "--list", "--out", str(tmp_path)], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "lenet5-dropout@0" in done.stdout


def test_an_installation_says_that_studies_need_a_checkout(tmp_path: Path) -> None:
    for package in ("training", "bundle", "calibrators"):
        (tmp_path / package).symlink_to(ROOT / package)
    done = subprocess.run(
        [sys.executable, "-m", "training", "study", "lenet-birdcat", "--list"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == USAGE, done.stderr
    assert "clone the repository" in done.stderr
