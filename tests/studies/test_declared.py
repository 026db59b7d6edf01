"""A grid of one's own, in a YAML file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from studies.declared import declared
from training import ConfigurationError
from training.cli import app

GRID = """
name: defects
question: Which loss is best calibrated?
base: {epochs: 1, train_rows: 60, reference_rows: 60, learning_rate: 2e-3}
grid:
  loss:
    cross-entropy: {}
    ours: {loss: "tests.training.own_things:asymmetric", coefficients: {cost: 3}}
  batch_size: [32]
seeds: 2
"""


def test_a_grid_is_every_combination_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID.replace("[32]", "[32, 64]"))
    cells = declared(path).cells("small", None)
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 2 * 2
    assert [cell.config.seed for cell in cells] == [0] * 4 + [1] * 4
    assert cells[3].key == "ours-batch_size_64@0"
    chosen = cells[3].config
    assert (chosen.epochs, chosen.batch_size, dict(chosen.coefficients)) == (1, 64, {"cost": 3})
    assert chosen.learning_rate == 0.002  # without a point, which PyYAML alone reads as a text
    assert len(declared(path).cells("small", 3)) == 12


def test_it_runs_and_reports(tmp_path: Path) -> None:
    (tmp_path / "grid.yml").write_text(GRID)
    typed = [str(tmp_path / "grid.yml"), "--out", str(tmp_path / "out"), "--report", str(tmp_path / "report")]
    done = CliRunner().invoke(app, ["study", *typed])
    assert done.exit_code == 0, done.output
    assert "4 of 4 cells done" in done.stdout
    page = (tmp_path / "report" / "README.md").read_text()
    assert "`candor-train study grid.yml " in page
    assert "Which loss is best calibrated?" in page
    assert "ours · batch_size 32 has a lower ECE than cross-entropy · batch_size 32 after temperature scaling" in page
    assert "4 of 4 cells done" in CliRunner().invoke(app, ["study", *typed, "--no-run"]).stdout


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("name: defects", "name: De fects", "expected lower-case letters"),
        ("name: defects", "", "name is missing"),
        ("  batch_size: [32]", "  way: {a+b: {epochs: 1}, a-b: {epochs: 2}}", r"a\+b and cross-entropy · a-b have the"),
        ("seeds: 2", "seeds: 0", "expected at least 1"),
        ("seeds: 2", "seed: 2", "unknown field 'seed'"),
        ("epochs: 1", "epochs: 0", r"cross-entropy · batch_size 32: epochs is 0"),
        ("epochs: 1", "model: lightgbm", "studies train networks, and the model is lightgbm"),
        ("epochs: 1", "dataset: vehicle_fraud", "for a table, name a network"),
        ("epochs: 1", "epoch: 1", r"unknown setting 'epoch'; did you mean epochs"),
        ("epochs: 1", "epochs: two", r"batch_size 32: epochs is 'two', expected a whole number"),
        ("epochs: 1", "seed: 1", "expected `seeds`"),
        ("[32]", "[]", "the axis batch_size"),
        ("[32]", "32", "the axis batch_size"),
        ("grid:", "grid: [", "cannot be read"),
    ],
)
def test_a_wrong_grid_is_refused_before_it_runs(before: str, after: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID.replace(before, after))
    with pytest.raises(ConfigurationError, match=why):
        declared(path)


def test_a_cell_without_test_rows_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID.replace("train_rows: 60", "train_rows: 0"))
    typed = [str(tmp_path / "grid.yaml"), "--out", str(tmp_path / "out"), "--only", "cross", "--seeds", "1"]
    done = CliRunner().invoke(app, ["study", *typed])
    assert done.exit_code == 1
    failure = next((tmp_path / "out").rglob("failure.json")).read_text()
    assert "digits leaves no rows to test on; set test_rows" in failure
    assert not list((tmp_path / "out").rglob("epochs.jsonl"))
