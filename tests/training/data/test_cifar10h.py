"""People's labels for the CIFAR-10 test images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training import DataError
from training.data import cifar10h

LABELS = np.random.default_rng(0).integers(0, 10, 300)


def write(folder: Path, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts of fifty people, most of whom give the label; the folder is made."""
    counts = np.random.default_rng(1).multinomial(20, np.full(10, 0.1), len(labels))
    counts[np.arange(len(labels)), labels] += 30
    folder.mkdir(exist_ok=True)
    np.save(folder / "cifar10h-counts.npy", counts)
    np.save(folder / "cifar10h-probs.npy", counts / counts.sum(axis=1, keepdims=True))
    return counts


def test_counts_and_shares(tmp_path: Path) -> None:
    counts = write(tmp_path / "cifar10h", LABELS)
    human = cifar10h.load(LABELS, tmp_path)
    np.testing.assert_array_equal(human.counts, counts)
    np.testing.assert_allclose(human.probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(human.probabilities, counts / 50)
    assert sorted(human.sources) == ["cifar10h/cifar10h-counts.npy", "cifar10h/cifar10h-probs.npy"]


def test_another_order_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, LABELS)
    with pytest.raises(DataError, match="the order differs"):
        cifar10h.load(np.roll(LABELS, 1), tmp_path)


@pytest.mark.parametrize("damage", ["missing", "cut", "rows", "classes", "other shares", "empty row", "archive"])
def test_damage_is_refused(tmp_path: Path, damage: str) -> None:
    counts = write(tmp_path, LABELS)
    file = tmp_path / "cifar10h-counts.npy"
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "rows":
        np.save(file, counts[:-1])
    elif damage == "classes":
        np.save(file, counts[:, :9])
    elif damage == "other shares":
        np.save(file, counts + 5)
    elif damage == "empty row":
        np.save(file, counts * (np.arange(300) > 0)[:, np.newaxis])
    else:
        np.savez(tmp_path / "x.npz", counts)
        (tmp_path / "x.npz").rename(file)
    with pytest.raises(DataError, match="jcpeterson/cifar-10h"):
        cifar10h.load(LABELS, tmp_path)
