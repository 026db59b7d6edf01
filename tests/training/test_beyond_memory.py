"""Data in temporary files: the models of data in memory, within a bounded memory, and nothing left behind."""

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


def the_same_both_ways(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> tuple[Trained | GrownTrees, Trained | GrownTrees]:
    """Train with the data in memory and in a file, and compare the logits."""
    in_memory = trained(config)
    monkeypatch.setattr(scratch, "LARGE", 0)
    in_file = trained(config)
    assert scratch.in_file(in_file.data.array)
    assert not scratch.in_file(in_memory.data.array)
    for rows in (in_memory.parts.certify, in_memory.parts.test):
        np.testing.assert_array_equal(in_file.scored(rows).logits, in_memory.scored(rows).logits)
    return in_memory, in_file


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
    in_memory, in_file = the_same_both_ways(config, monkeypatch)
    assert in_file.data.columns == in_memory.data.columns
    assert in_file.exported().model == in_memory.exported().model


def test_texts_in_a_file_give_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"bill {row % 7} is {'late' if row % 3 else 'paid'} {row},{row % 3 > 0},{row // 2}" for row in range(300)]
    (tmp_path / "texts.csv").write_text("body,late,person\n" + "\n".join(lines) + "\n")
    config = TrainConfig(
        dataset="texts",
        data=tmp_path,
        data_settings={"file": "texts.csv", "text": "body", "label": "late", "group": "person", "length": 6},
        model="text_cnn",
        test_rows=30,
        reference_rows=60,
        epochs=1,
        threads=1,
    )
    in_memory, in_file = the_same_both_ways(config, monkeypatch)
    assert in_file.data.vocabulary == in_memory.data.vocabulary


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
import resource
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + {} * 2**20,) * 2)
"""
TABLE = """
import sys
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
LIMIT
whole = config.read()
suited, notes = config.suited(whole)
print(fit(suited, Given(*suited.cut(whole), notes=notes)).scored(whole.outside_test()).logits.shape)
""".replace("LIMIT", LIMITED.format(120))
TEXTS = """
import sys
from pathlib import Path
from training import scratch
from training.data import DATASETS

scratch.LARGE = 2**22
LIMIT
data = DATASETS["texts"](Path(sys.argv[1]), file="large.csv", text="body", label="y", length=200)
chosen = data.select(data.outside_test()[::7]).learned_from(data.outside_test()[:100])
print(data.inputs.shape, len(chosen.vocabulary), sum(map(len, chosen.texts[:10].tolist())))
""".replace("LIMIT", LIMITED.format(64))


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts what Linux counts")
def test_a_table_is_read_within_a_bounded_memory(tmp_path: Path) -> None:
    """As Python's texts, the cells alone take half as much again as the limit."""
    pytest.importorskip("lightgbm")
    rows, columns = 150_000, 24
    draw = np.random.default_rng(0)
    lines = [",".join(map(str, row)) for row in draw.integers(10_000, 99_999, (1000, columns)).tolist()]
    with (tmp_path / "large.csv").open("w") as stream:
        stream.write(",".join([*(f"x{place}" for place in range(columns)), "y"]) + "\n")
        for start in range(0, rows, len(lines)):
            stream.writelines(f"{line},{(start + row) * 7 // 3 % 2}\n" for row, line in enumerate(lines))
    assert run(TABLE, tmp_path) == f"({rows}, 2)"


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts what Linux counts")
def test_texts_are_read_within_a_bounded_memory(tmp_path: Path) -> None:
    """Their tokens take half as much again as the limit."""
    rows, text = 125_000, " ".join(f"word{number}" for number in range(40))
    with (tmp_path / "large.csv").open("w") as stream:
        stream.write("body,y\n")
        stream.writelines(f"{text} row {row % 1000},{row % 2}\n" for row in range(rows))
    sizes = sum(len(f"{text} row {row}") for row in range(0, 70, 7))
    assert run(TEXTS, tmp_path) == f"({rows}, 200) {40 + 1 + 100 + 2} {sizes}"


def run(script: str, folder: Path) -> str:
    """Return the last line that a script prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, folder], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]
