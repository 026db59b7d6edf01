"""The data sets themselves, where CANDOR_DATA names a folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from training import DataError
from training.data import DataOptions, cifar10h, load
from training.data.distribution import VARIABLE
from training.data.newsgroups20 import GROUPS

FOLDER = Path(os.environ.get(VARIABLE) or "/nonexistent")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (FOLDER / name).exists(), reason=f"{VARIABLE} names no folder that holds {name}")


@needs("cifar-10-batches-bin")
def test_cifar10() -> None:
    data = load("cifar10")
    assert data.inputs.shape == (60_000, 32, 32, 3)
    assert data.test == range(50_000, 60_000)
    assert np.bincount(data.labels[:50_000]).tolist() == [5_000] * 10
    assert np.bincount(data.labels[50_000:]).tolist() == [1_000] * 10
    # the first image is a frog, the first test image a cat; the pixels are those that everyone's copy begins with
    assert data.labels[[0, 1, 2, 50_000, 50_001]].tolist() == [6, 9, 9, 3, 8]
    assert data.inputs[0, 0, :2].tolist() == [[59, 62, 63], [43, 46, 45]]
    assert data.inputs[50_000, 0, 0].tolist() == [158, 112, 49]
    assert data.inputs[:50_000].reshape(-1, 3).mean(axis=0) == pytest.approx([125.31, 122.95, 113.87], abs=0.05)


@needs("cifar-10-batches-bin")
def test_bird_and_cat_of_cifar10() -> None:
    data = load("cifar10:bird,cat", DataOptions(rows=4_000))
    assert data.label_names == ("bird", "cat")
    assert np.bincount(data.labels[:4_000]).tolist() == [2_000, 2_000]
    assert data.test == range(4_000, 6_000)
    assert np.bincount(data.labels[4_000:]).tolist() == [1_000, 1_000]
    assert data.labels[4_000] == 1


@needs("cifar10h")
@needs("cifar-10-batches-bin")
def test_people_agree_with_cifar10() -> None:
    data = load("cifar10")
    labels = data.labels[list(data.test)]
    human = cifar10h.load(labels)
    assert human.counts.sum() == 511_400 - 400
    assert human.probabilities[np.arange(10_000), labels].mean() == pytest.approx(0.95, abs=0.01)


@needs("fashion-mnist/t10k-images-idx3-ubyte.gz")
def test_fashion_mnist() -> None:
    data = load("fashion_mnist", DataOptions(settings={"part": "test"}))
    assert data.inputs.shape == (10_000, 28, 28, 1)
    assert np.bincount(data.labels).tolist() == [1_000] * 10
    assert data.label_names[data.labels[0]] == "ankle boot"
    assert data.inputs.mean() == pytest.approx(73.15, abs=0.05)
    if not (FOLDER / "fashion-mnist" / "train-images-idx3-ubyte.gz").exists():
        with pytest.raises(DataError, match="only the test files"):
            load("fashion_mnist")


@needs("newsgroups20")
def test_newsgroups20() -> None:
    data = load("newsgroups20", DataOptions(test_rows=3_999, settings={"length": 200, "vocabulary_size": 5_000}))
    assert len(data) == 19_997
    counts = np.bincount(data.labels)
    assert {name: int(count) for name, count in zip(GROUPS, counts, strict=True) if count != 1_000} == {
        "soc.religion.christian": 997
    }
    assert len(data.test) == 3_999
    assert np.bincount(data.labels[15_998:]).min() >= 198
    learned = data.learned_from(np.arange(15_000))
    assert learned.vocabulary is not None
    assert len(learned.vocabulary) == 5_000
    assert learned.vocabulary.words[2] == "the"
    assert set(learned.vocabulary.words[3:6]) == {"to", "of", "a"}
    assert 0.05 < (learned.inputs == 1).mean() / (learned.inputs > 0).mean() < 0.2


@needs("vehicle-fraud")
def test_vehicle_fraud() -> None:
    data = load("vehicle_fraud")
    assert data.inputs.shape == (15_420, 31)
    assert np.bincount(data.labels).tolist() == [14_497, 923]
    assert data.columns is not None
    categories = {column.name: column.categories for column in data.columns.columns}
    assert "PolicyNumber" not in categories
    assert sum(values is not None for values in categories.values()) == 25
    assert len(categories["Make"] or ()) == 19
    assert np.isfinite(data.inputs).all()
