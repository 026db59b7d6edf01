"""The recipe for photographs, where a run names none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from training import TrainConfig
from training.cli import app
from training.data import Dataset
from training.photographs import BY_DATA

RECIPE = {"crop": 2, "flip": True, "weight_decay": 0.05, "average": 0.995}
PLAIN = {"crop": 0, "flip": False, "weight_decay": 0.0, "average": 0.0}


def images(*, colour: bool = True, name: str = "arrays") -> Dataset:
    draw = np.random.default_rng(0)
    found: NDArray[np.uint8] = draw.integers(0, 256, (60, 16, 20, 3), np.uint8)
    return Dataset(name, found if colour else found[..., :1].repeat(3, axis=3), np.arange(60) % 2, ("a", "b"))


def recipe(data: Dataset, **settings: Any) -> dict[str, Any]:
    config = TrainConfig(train_rows=20, reference_rows=20, **{"by_data": BY_DATA, **settings})
    suited, notes = config.suited(data)
    assert suited.by_data == ()
    assert suited.suited(data) == (suited, ())
    found = {key: getattr(suited, key) for key in RECIPE}
    assert len(notes) == (found != PLAIN)
    return found


def test_photographs_get_a_recipe_and_a_note() -> None:
    assert recipe(images()) == RECIPE
    notes = TrainConfig(by_data=BY_DATA, reference_rows=20, train_rows=20).suited(images())[1]
    assert "--crop 2 --flip --weight-decay 0.05 --average 0.995" in notes[0]


def test_named_settings_stay() -> None:
    assert recipe(images(), by_data=("flip", "average")) == RECIPE | {"crop": 0, "weight_decay": 0.0}
    assert recipe(images(), optimiser="sgd") == RECIPE | {"weight_decay": 5e-4}
    assert recipe(images(), by_data=()) == PLAIN


@pytest.mark.parametrize("data", [images(colour=False), replace(images(), inputs=images().array[..., :1])])
def test_grey_images_are_no_photographs(data: Dataset) -> None:
    assert recipe(data) == PLAIN


def test_digits_in_colour_are_not_mirrored() -> None:
    assert recipe(images(name="svhn:1,7")) == RECIPE | {"flip": False}


def test_the_command_line_leaves_open_what_is_not_typed(tmp_path: Path) -> None:
    data = images()
    np.savez(tmp_path / "own.npz", images=data.array, labels=data.labels)
    told = ["--dataset", "arrays", "--data", tmp_path, "--data-setting", "file=own.npz", "--epochs", "1", "--no-log"]
    told += ["--train-rows", "20", "--reference-rows", "20", "--allow-poor", "--json", "--model", "lenet5"]

    def trained(*more: str) -> tuple[dict[str, Any], list[str]]:
        done = CliRunner().invoke(app, ["train", "--out", str(tmp_path / "out"), *map(str, told), *more])
        assert done.exit_code == 0, done.stderr
        document = json.loads(done.stdout)
        record = document["manifest"]["training"]["recipe"]
        return {key: record[key] for key in RECIPE}, document["report"]["training"]["notes"]

    found, notes = trained("--no-flip", "--weight-decay", "0")
    assert found == RECIPE | {"flip": False, "weight_decay": 0.0}
    assert "--crop 2 --average 0.995" in notes[0]
    assert trained("--plain") == (PLAIN, [])
