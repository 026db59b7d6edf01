"""Tables in temporary files: the models of tables in memory, within a bounded memory, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.training.trees.test_learn import write
from training import DataError, TrainConfig, scratch
from training.pipeline import fit
from training.trained import Given, Trained
from training.trees.learn import GrownTrees

SETTINGS = {"file": "claims.csv", "label": "fraud", "weight": "weight"}


def trained(config: TrainConfig) -> Trained | GrownTrees:
    whole = config.read()
    suited, notes = config.suited(whole)
    return fit(suited, Given(*suited.cut(whole), notes=notes))


@pytest.mark.parametrize("model", ["lightgbm", "xgboost", "catboost", "hist_gradient_boosting", "table_cnn"])
def test_a_table_in_a_file_gives_the_same_model(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if model in ("lightgbm", "xgboost", "catboost"):
        pytest.importorskip(model)
    write(tmp_path)
    config = TrainConfig(
        dataset="table",
        data=tmp_path,
        data_settings=SETTINGS,
        model=model,
        test_rows=200,
        reference_rows=300,
        patience=2,
        threads=1,
    )
    if model == "table_cnn":
        config = replace(config, epochs=2)
    in_memory = trained(config)
    monkeypatch.setattr(scratch, "LARGE", 0)
    in_file = trained(config)
    assert scratch.in_file(in_file.data.array)
    assert not scratch.in_file(in_memory.data.array)
    assert in_file.data.columns == in_memory.data.columns
    assert in_file.exported().model == in_memory.exported().model
    for rows in (in_memory.parts.certify, in_memory.parts.test):
        np.testing.assert_array_equal(in_file.scored(rows).logits, in_memory.scored(rows).logits)


def test_no_file_is_left_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "LARGE", 0)
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    write(tmp_path)
    with (tmp_path / "claims.csv").open("a") as stream:
        stream.write("1,2,shop 1,A,1,\n")
    config = TrainConfig(dataset="table", data=tmp_path, data_settings=SETTINGS)
    with pytest.raises(DataError, match="line 1602, column fraud: The label is missing"):
        replace(config, model="table_cnn").read()
    assert not any(folder.iterdir())


LIMITED = """
import resource, sys
from pathlib import Path
import lightgbm
from training import TrainConfig, scratch
from training.pipeline import fit
from training.trained import Given

config = TrainConfig(
    dataset="table", data=Path(sys.argv[1]), data_settings={"file": "large.csv", "label": "y"}, model="lightgbm",
    train_rows=20_000, validation_rows=1_000, reference_rows=2_000, patience=1, threads=1,
)
scratch.LARGE = 2**22
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + 200 * 2**20,) * 2)
whole = config.read()
suited, notes = config.suited(whole)
print(fit(suited, Given(*suited.cut(whole), notes=notes)).scored(whole.outside_test()).logits.shape)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts what Linux counts")
def test_a_table_is_read_within_a_bounded_memory(tmp_path: Path) -> None:
    """As Python's texts, the cells alone take twice the limit."""
    pytest.importorskip("lightgbm")
    rows, columns = 300_000, 24
    draw = np.random.default_rng(0)
    lines = [",".join(map(str, row)) for row in draw.integers(10_000, 99_999, (1000, columns)).tolist()]
    with (tmp_path / "large.csv").open("w") as stream:
        stream.write(",".join([*(f"x{place}" for place in range(columns)), "y"]) + "\n")
        for start in range(0, rows, len(lines)):
            stream.writelines(f"{line},{(start + row) * 7 // 3 % 2}\n" for row, line in enumerate(lines))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.splitlines()[-1:] == [f"({rows}, 2)"], done.stderr[-2000:]
