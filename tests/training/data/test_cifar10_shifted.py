"""CIFAR-10.1 and CIFAR-10.2 as they are published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training import ConfigurationError, DataError
from training.data import SHIFTED, DataOptions, load
from training.data.cifar10 import CLASSES

RANDOM = np.random.default_rng(0)


def arrays(count: int) -> tuple[np.ndarray, np.ndarray]:
    images = RANDOM.integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
    return images, (np.arange(count) % 10).astype(np.int32)


@pytest.mark.parametrize(("version", "count"), [("v6", 2000), ("v4", 2021)])
@pytest.mark.parametrize("folder", ["cifar-10.1", "CIFAR-10.1/datasets"])
def test_10_1(tmp_path: Path, version: str, count: int, folder: str) -> None:
    images, labels = arrays(count)
    (tmp_path / folder).mkdir(parents=True)
    np.save(tmp_path / folder / f"cifar10.1_{version}_data.npy", images)
    np.save(tmp_path / folder / f"cifar10.1_{version}_labels.npy", labels)
    data = SHIFTED["cifar10.1"](tmp_path, version=version)
    np.testing.assert_array_equal(data.inputs, images)
    np.testing.assert_array_equal(data.labels, labels)
    assert data.label_names == CLASSES
    assert data.test == range(count)


def test_10_2_by_name_with_classes(tmp_path: Path) -> None:
    images, labels = arrays(2000)
    (tmp_path / "cifar-10.2").mkdir()
    members = {"label_names": np.array(CLASSES), "keywords": np.array([["a"], {}], object)}  # the latter is never read
    np.savez(tmp_path / "cifar-10.2" / "cifar102_test.npz", images=images, labels=labels.astype(np.int64), **members)
    data = SHIFTED["cifar10.2"](tmp_path)
    np.testing.assert_array_equal(data.inputs, images)
    pets = load("cifar10.2:cat,dog", DataOptions(tmp_path))
    assert len(pets) == len(pets.test) == 400
    assert not len(pets.outside_test())


def test_other_versions_and_parts(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="v4, v6"):
        SHIFTED["cifar10.1"](tmp_path, version="v5")
    with pytest.raises(ConfigurationError, match="train, test"):
        SHIFTED["cifar10.2"](tmp_path, part="all")


@pytest.mark.parametrize("damage", ["missing", "cut", "few", "float", "labels", "pickle"])
def test_damaged_files_of_10_1(tmp_path: Path, damage: str) -> None:
    images, labels = arrays(2000)
    file = tmp_path / "cifar10.1_v6_data.npy"
    np.save(tmp_path / "cifar10.1_v6_labels.npy", labels + (damage == "labels"))
    np.save(file, images[: 1999 if damage == "few" else 2000].astype(float if damage == "float" else np.uint8))
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "pickle":
        np.save(file, np.array([{}], object))
    with pytest.raises(DataError, match=r"modestyachts/CIFAR-10\.1"):
        SHIFTED["cifar10.1"](tmp_path)


@pytest.mark.parametrize("damage", ["missing", "cut", "no labels", "an array"])
def test_damaged_files_of_10_2(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "cifar102_test.npz"
    images, labels = arrays(2000)
    if damage == "cut":
        np.savez(file, images=images, labels=labels)
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "no labels":
        np.savez(file, images=images)
    elif damage == "an array":
        np.save(tmp_path / "x.npy", images)
        (tmp_path / "x.npy").rename(file)
    with pytest.raises(DataError, match=r"cifar-10\.2"):
        SHIFTED["cifar10.2"](tmp_path)
