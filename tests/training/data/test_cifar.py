"""CIFAR-10 and CIFAR-100 in the official binary layout, with few records."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training import ConfigurationError, DataError
from training.data import cifar10, cifar100, load

COUNT = 12


def record_bytes(labels: NDArray[np.uint8], images: NDArray[np.uint8]) -> bytes:
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels, planes], axis=1).tobytes()


@pytest.fixture
def images() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (6 * COUNT, 32, 32, 3)).astype(np.uint8)


@pytest.fixture
def ten(tmp_path: Path, images: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data sets with CIFAR-10, twelve records a batch; the folder of the batches."""
    monkeypatch.setattr(cifar10, "RECORDS", COUNT)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    for place, name in enumerate(names):
        rows = slice(place * COUNT, (place + 1) * COUNT)
        labels = (np.arange(COUNT, dtype=np.uint8) % 10)[:, np.newaxis]
        (folder / name).write_bytes(record_bytes(labels, images[rows]))
    return folder


@pytest.fixture
def hundred(tmp_path: Path, images: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cifar100, "RECORDS", {"train.bin": 2 * COUNT, "test.bin": COUNT})
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    for name, start, count in (("train.bin", 0, 2 * COUNT), ("test.bin", 2 * COUNT, COUNT)):
        labels = np.stack([np.arange(count) % 20, 99 - np.arange(count)], axis=1).astype(np.uint8)
        (folder / name).write_bytes(record_bytes(labels, images[start : start + count]))
    for level, classes in (("fine", 100), ("coarse", 20)):
        names = "".join(f"{level}_{number}\n" for number in range(classes))
        (folder / f"{level}_label_names.txt").write_text(names + "\n")
    return folder


@pytest.mark.parametrize("named", ["data sets", "this one"])
def test_cifar10_is_read_in_the_official_order(ten: Path, images: NDArray[np.uint8], named: str) -> None:
    data = cifar10.load(ten.parent if named == "data sets" else ten)
    np.testing.assert_array_equal(data.inputs, images)
    assert data.labels.tolist() == [*range(10), 0, 1] * 6
    assert data.test == range(5 * COUNT, 6 * COUNT)
    assert data.label_names[2:4] == ("bird", "cat")
    name = "test_batch.bin" if named == "this one" else "cifar-10-batches-bin/test_batch.bin"
    assert data.sources[name] == hashlib.sha256((ten / "test_batch.bin").read_bytes()).hexdigest()
    assert len(data.sources) == 6


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("missing", "data_batch_3.bin is missing"),
        ("cut", "data_batch_3.bin has"),
        ("a record short", "data_batch_3.bin has"),
        ("label", "a label of 10"),
        ("folder", "cannot be read"),
    ],
)
def test_a_damaged_batch_is_named_and_the_remedy_told(ten: Path, damage: str, told: str) -> None:
    file = ten / "data_batch_3.bin"
    data = file.read_bytes()
    file.unlink()
    if damage == "cut":
        file.write_bytes(data[:-1])
    elif damage == "a record short":
        file.write_bytes(data[3073:])
    elif damage == "label":
        file.write_bytes(b"\x0a" + data[1:])
    elif damage == "folder":
        file.mkdir()
    with pytest.raises(DataError, match=told) as caught:
        cifar10.load(ten.parent)
    assert "cifar-10-binary.tar.gz" in str(caught.value)
    assert "10,000 records" in str(caught.value)


def test_a_folder_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, told in ((tmp_path, "no files found in"), (tmp_path / "none", "is not a folder")):
        with pytest.raises(DataError, match=told):
            cifar10.load(folder)
    monkeypatch.delenv("CANDOR_DATA", raising=False)
    with pytest.raises(DataError, match="CANDOR_DATA"):
        cifar10.load()


def test_the_environment_names_the_folder(ten: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDOR_DATA", str(ten.parent))
    assert len(load("cifar10:bird,cat")) == 12


def test_cifar100_has_two_levels(hundred: Path, images: NDArray[np.uint8]) -> None:
    fine, coarse = (cifar100.load(hundred.parent, labels=level) for level in ("fine", "coarse"))
    np.testing.assert_array_equal(fine.inputs, images[: 3 * COUNT])
    assert fine.labels[:3].tolist() == [99, 98, 97]
    assert coarse.labels[:3].tolist() == [0, 1, 2]
    assert (fine.label_names[98], coarse.label_names[19]) == ("fine_98", "coarse_19")
    assert fine.test == coarse.test == range(2 * COUNT, 3 * COUNT)


def test_cifar100_refuses_what_does_not_fit(hundred: Path) -> None:
    with pytest.raises(ConfigurationError, match="expected one of: coarse, fine"):
        cifar100.load(hundred.parent, labels="super")
    (hundred / "fine_label_names.txt").write_text("apple\n")
    with pytest.raises(DataError, match="1 names, not 100"):
        cifar100.load(hundred.parent)
    data = (hundred / "test.bin").read_bytes()
    (hundred / "test.bin").write_bytes(b"\x14" + data[1:])
    with pytest.raises(DataError, match="a label of 20, not 0 … 19"):
        cifar100.load(hundred.parent, labels="coarse")
