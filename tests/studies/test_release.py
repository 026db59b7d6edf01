"""The release file: from raw outputs alone, everything that a study measures follows again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from studies.cell import Cell
from studies.grid import Grid
from studies.registry import STUDIES
from studies.release import read_release, write_release
from studies.results import RESULT, read_result
from studies.run_cell import LOGITS, run_cell
from training import TrainConfig
from training.cli import app
from training.errors import ConfigurationError

EVERYTHING = {
    "validation_sizes": [50, 100],
    "largest_logits": True,
    "confidnet": True,
    "confidnet_tuned": True,
    "shifts": ["gaussian_noise@3", "cifar10.1"],
}
CELL = Cell(
    "tiny", "loss=0.5@0", TrainConfig(epochs=2, train_rows=200, reference_rows=200, validation_rows=50), EVERYTHING
)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of one finished cell."""
    folder = tmp_path_factory.mktemp("out")
    run_cell(CELL, folder, None, lambda _: None)
    return folder


def test_every_number_of_a_result_follows_from_the_file(out: Path, tmp_path: Path) -> None:
    unfinished = Cell("tiny", "other@0", TrainConfig(epochs=3))
    assert write_release(Grid([CELL, unfinished], out), tmp_path / "tiny.npz") == (1, 0)
    result = read_result(CELL, out)
    assert result is not None
    again = read_release(tmp_path / "tiny.npz", [CELL, unfinished])
    assert json.loads(json.dumps(again)) == {CELL.key: result}
    assert set(EVERYTHING) - {"validation_sizes", "shifts"} < set(result)


def test_the_file_holds_labels_and_logits_for_anyone_with_numpy(out: Path, tmp_path: Path) -> None:
    write_release(Grid([CELL], out), tmp_path / "tiny.npz")
    with np.load(tmp_path / "tiny.npz", allow_pickle=False) as archive:
        logits, labels = archive["loss=0.5@0/test_logits"], archive["loss=0.5@0/test_labels"]
        recorded = json.loads(archive["loss=0.5@0/document"].tobytes())
    assert recorded["cell"] == CELL.document()
    result = json.loads((CELL.folder(out) / RESULT).read_text())
    assert (logits.argmax(axis=1) == labels).mean() == pytest.approx(result["test"]["none"]["accuracy"])


def test_cells_without_raw_outputs_are_counted(out: Path, tmp_path: Path) -> None:
    elsewhere = Grid([CELL], tmp_path)
    elsewhere.take({CELL.key: json.loads((CELL.folder(out) / RESULT).read_text())})
    assert not (CELL.folder(tmp_path) / LOGITS).exists()
    assert write_release(elsewhere, tmp_path / "none.npz") == (0, 1)


def test_another_configuration_and_a_damaged_file_are_refused(out: Path, tmp_path: Path) -> None:
    write_release(Grid([CELL], out), tmp_path / "tiny.npz")
    other = Cell("tiny", CELL.key, TrainConfig(epochs=5), EVERYTHING)
    with pytest.raises(ConfigurationError, match="epochs was 2 and is 5"):
        read_release(tmp_path / "tiny.npz", [other])
    (tmp_path / "half.npz").write_bytes((tmp_path / "tiny.npz").read_bytes()[:1000])
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_release(tmp_path / "half.npz", [CELL])


def test_the_command_writes_the_file_and_takes_its_cells(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(
        "name: tiny\nbase: {epochs: 1, train_rows: 60, reference_rows: 60}\ngrid: {dropout: [0, 0.2]}\nseeds: 2\n"
    )

    def study(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["study", str(tmp_path / "grid.yaml"), *arguments], env={"COLUMNS": "300"})
        assert done.exit_code == 0, done.output
        return done.output

    file, reports = tmp_path / "logits.npz", [tmp_path / name for name in ("first", "again")]
    told = study("--out", str(tmp_path / "out"), "--logits", str(file), "--report", str(reports[0]))
    assert f"{file}: 4 cells" in told.replace("\n", "")
    study("--out", str(tmp_path / "elsewhere"), "--from", str(file), "--no-run", "--report", str(reports[1]))
    written = {path.name: path.read_bytes() for path in reports[0].iterdir()}
    assert written == {path.name: path.read_bytes() for path in reports[1].iterdir()}
    told = study("--out", str(tmp_path / "out"), "--power")
    assert "seeds for 80 %" in told
    assert "processor minutes left" in told


def test_a_study_without_finished_cells_states_the_power_of_its_stored_report(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["study", "wang2021", "--out", str(tmp_path), "--power"], env={"COLUMNS": "300"})
    assert told.exit_code == 0, told.output
    assert "label smoothing 0.05 on cifar10 resnet20: is better *calibrated*: lower ECE before TS" in told.output
    assert len(STUDIES["wang2021"].cells("small", None)) == 136
    assert "136" in told.output.splitlines()[-1]
