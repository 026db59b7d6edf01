"""SVHN's MATLAB files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from training import DataError
from training.data import DATASETS

RANDOM = np.random.default_rng(0)


def write(folder: Path, name: str, **change: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    labels = np.array([[1], [10], [9], [10], [5]], np.uint8)
    arrays = {"X": RANDOM.integers(0, 256, (32, 32, 3, 5)).astype(np.uint8), "y": labels} | change
    savemat(folder / name, arrays)
    return arrays


def test_ten_stands_for_zero_and_images_come_first(tmp_path: Path) -> None:
    train = write(tmp_path / "svhn", "train_32x32.mat")
    test = write(tmp_path / "svhn", "test_32x32.mat")
    data = DATASETS["svhn"](tmp_path)
    assert data.labels.tolist() == [1, 0, 9, 0, 5] * 2
    assert data.label_names[0] == "0"
    assert data.test == range(5, 10)
    np.testing.assert_array_equal(data.inputs[1], train["X"][:, :, :, 1])
    np.testing.assert_array_equal(data.inputs[7], test["X"][:, :, :, 2])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"y": np.array([[1], [0], [9], [10], [5]], np.uint8)}, "labels other than 1 … 10"),
        ({"y": np.array([[1], [11], [9], [10], [5]], np.uint8)}, "labels other than 1 … 10"),
        ({"y": np.ones((4, 1), np.uint8)}, "for 4 labels"),
        ({"X": np.zeros((5, 32, 32, 3), np.uint8)}, "for 5 labels"),
        ({"X": np.zeros((32, 32, 3, 5))}, "float64"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    write(tmp_path / "svhn", "train_32x32.mat")
    write(tmp_path / "svhn", "test_32x32.mat", **change)
    with pytest.raises(DataError, match=told):
        DATASETS["svhn"](tmp_path)


@pytest.mark.parametrize("kind", ["missing", "cut", "text", "other names"])
def test_damaged_files_are_refused(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "svhn", "test_32x32.mat")
    file = tmp_path / "svhn" / "train_32x32.mat"
    if kind == "cut":
        file.write_bytes((file.parent / "test_32x32.mat").read_bytes()[:-5000])
    elif kind == "text":
        file.write_text("no matrix")
    elif kind == "other names":
        savemat(file, {"pixels": np.zeros(3)})
    with pytest.raises(DataError, match=r"train_32x32.mat .*(missing|cannot be read).*housenumbers"):
        DATASETS["svhn"](tmp_path)
