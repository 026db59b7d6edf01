"""MNIST and Fashion-MNIST in the idx layout, packed or not."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training import ConfigurationError, DataError
from training.data import DATASETS

RANDOM = np.random.default_rng(0)


def write(folder: Path, part: str, count: int, *, packed: bool = False) -> NDArray[np.uint8]:
    images = RANDOM.integers(0, 256, (count, 28, 28)).astype(np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (
        (f"{part}-images-idx3-ubyte", struct.pack(">4I", 0x803, count, 28, 28) + images.tobytes()),
        (f"{part}-labels-idx1-ubyte", struct.pack(">2I", 0x801, count) + labels.tobytes()),
    ):
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data, mtime=0))
        else:
            (folder / name).write_bytes(data)
    return images


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion_mnist", "fashion-mnist"),
        ("fashion_mnist", "FashionMNIST/raw"),
    ],
)
def test_both_parts_packed_or_not(tmp_path: Path, name: str, folder: str) -> None:
    train = write(tmp_path / folder, "train", 20, packed=True)
    test = write(tmp_path / folder, "t10k", 11)
    data = DATASETS[name](tmp_path)
    np.testing.assert_array_equal(data.inputs[..., 0], np.concatenate([train, test]))
    assert data.labels.tolist() == [*range(10), *range(10), *range(10), 0]
    assert data.test == range(20, 31)
    assert len(data.label_names) == 10
    assert f"{folder}/train-images-idx3-ubyte.gz" in data.sources


def test_the_test_files_alone(tmp_path: Path) -> None:
    test = write(tmp_path / "fashion-mnist", "t10k", 11, packed=True)
    with pytest.raises(DataError, match=r"only the test files.*part=test.*zalandoresearch"):
        DATASETS["fashion_mnist"](tmp_path)
    data = DATASETS["fashion_mnist"](tmp_path, part="test")
    np.testing.assert_array_equal(data.inputs[..., 0], test)
    assert not data.test
    with pytest.raises(ConfigurationError, match="expected one of: all, test"):
        DATASETS["fashion_mnist"](tmp_path, part="train")


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("train-images-idx3-ubyte", None, "train-images-idx3-ubyte or train-images-idx3-ubyte.gz is missing"),
        ("train-labels-idx1-ubyte", None, "train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz is missing"),
        ("train-images-idx3-ubyte", b"", "0 bytes unpacked"),
        ("train-images-idx3-ubyte", struct.pack(">4I", 0x801, 4, 28, 28) + bytes(4 * 784), "begins with 0x801"),
        ("train-images-idx3-ubyte", struct.pack(">4I", 0x803, 4, 28, 28) + bytes(4 * 784 - 1), "after its header"),
        ("train-images-idx3-ubyte", struct.pack(">4I", 0x803, 4, 28, 28) + bytes(4 * 784 + 1), "after its header"),
        ("train-images-idx3-ubyte", struct.pack(">4I", 0x803, 3, 28, 28) + bytes(3 * 784), "for 4 labels"),
        ("train-images-idx3-ubyte", struct.pack(">4I", 0x803, 4, 14, 56) + bytes(4 * 784), "for 4 labels"),
        ("train-images-idx3-ubyte", struct.pack(">4I", 0x803, 2**32 - 1, 2**32 - 1, 9) + bytes(9), "after its header"),
        ("train-labels-idx1-ubyte", struct.pack(">2I", 0x801, 4) + bytes([0, 1, 10, 2]), "a label of 10"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(bytes(100), mtime=0)[:-9], "cannot be unpacked"),
        ("train-labels-idx1-ubyte.gz", b"no archive", "cannot be unpacked"),
    ],
)
def test_damage_is_refused(tmp_path: Path, name: str, data: bytes | None, told: str) -> None:
    for part in ("train", "t10k"):
        write(tmp_path / "mnist", part, 4)
    (tmp_path / "mnist" / name.removesuffix(".gz")).unlink()
    if data is not None:
        (tmp_path / "mnist" / name).write_bytes(data)
    with pytest.raises(DataError, match=told):
        DATASETS["mnist"](tmp_path)
