"""What a data set holds, and what a network is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundle import Column, Columns, InputSpec, Vocabulary
from training import DataError
from training.data import Dataset
from training.inputs import CategoryColumn, ImageShape, NumberColumn, TableShape, TokenShape

RANDOM = np.random.default_rng(0)
LABELS = np.arange(10) % 2


@pytest.fixture
def images() -> Dataset:
    inputs = RANDOM.integers(1, 256, (10, 4, 5, 3)).astype(np.uint8)
    return Dataset("images", inputs, LABELS, ("a", "b"), test=range(7, 10))


@pytest.fixture
def texts() -> Dataset:
    words = ["red fox", "red red dog", "fox", "cat", "red", "dog", "dog", "dog", "ant bee", "bee"]
    vocabulary = Vocabulary.count(words, size=100, length=3)
    return Dataset(
        "texts",
        vocabulary.encode(words),
        LABELS,
        ("a", "b"),
        kind="tokens",
        vocabulary=vocabulary,
        vocabulary_size=4,
    )


@pytest.fixture
def table() -> Dataset:
    columns = Columns((Column("n"), Column("c", ("p", "q", "r"))))
    inputs = np.stack([np.arange(10), np.arange(10) % 4], axis=1).astype(np.float32)
    return Dataset("table", inputs, LABELS, ("a", "b"), kind="array", columns=columns)


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": np.zeros((10, 4, 5, 3), np.float32)},
        {"inputs": np.zeros((10, 4, 5), np.uint8)},
        {"inputs": np.zeros((9, 4, 5, 3), np.uint8)},
        {"inputs": np.zeros((0, 4, 5, 3), np.uint8), "labels": np.zeros(0, np.int64), "test": range(0)},
        {"labels": LABELS.astype(np.int32)},
        {"labels": LABELS[:, np.newaxis]},
        {"labels": LABELS + 1},
        {"labels": LABELS - 1},
        {"label_names": ("a",), "labels": LABELS * 0},
        {"label_names": ("a", "a")},
        {"test": range(7, 11)},
        {"test": range(0, 10, 2)},
        {"kind": "tokens"},
    ],
)
def test_parts_that_do_not_fit(images: Dataset, change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="expected"):
        replace(images, **change)


def test_selected_rows_keep_their_order_and_their_test_part(images: Dataset) -> None:
    some = images.select(np.array([9, 0, 7, 3]))
    np.testing.assert_array_equal(some.inputs, images.inputs[[0, 3, 7, 9]])
    assert some.labels.tolist() == [0, 1, 1, 1]
    assert some.test == range(2, 4)
    assert not images.select(np.arange(4)).test
    assert images.outside_test().tolist() == list(range(7))


def test_images_are_measured_on_the_training_rows(images: Dataset) -> None:
    train = np.array([1, 4])
    shape = images.shape(train)
    assert isinstance(shape, ImageShape)
    assert (shape.height, shape.width, shape.channels) == (4, 5, 3)
    expected = np.sqrt((images.inputs[train].astype(float) ** 2).mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(shape.scale, expected)
    assert images.learned_from(train) is images
    assert images.spec(resize=True) == InputSpec(kind="image", dtype="uint8", shape=(4, 5, 3), resize=True)


def test_texts_keep_the_frequent_words_of_the_training_rows(texts: Dataset) -> None:
    learned = texts.learned_from(np.array([0, 1, 2, 3]))
    assert learned.vocabulary is not None
    assert learned.vocabulary.words[2:] == ("red", "fox")
    assert learned.inputs[[1, 8]].tolist() == [[2, 2, 1], [1, 1, 0]]
    assert learned.shape(np.arange(4)) == TokenShape(vocabulary=4, length=3)
    assert learned.spec() == InputSpec(kind="tokens", dtype="int32", shape=(3,))
    np.testing.assert_array_equal(learned.inputs[1:2], learned.vocabulary.encode(["red RED dog"]))


def test_tables_keep_the_categories_of_the_training_rows(table: Dataset) -> None:
    train = np.array([1, 3, 4, 5])
    learned = table.learned_from(train)
    assert learned.columns == Columns((Column("n"), Column("c", ("p", "r"))))
    assert learned.inputs[:, 1].tolist() == [0, 1, 0, 2, 0, 1, 0, 2, 0, 1]
    assert table.inputs[:4, 1].tolist() == [0, 1, 2, 3]
    numbers = table.inputs[train, 0].astype(float)
    number = NumberColumn(numbers.mean(), numbers.std(), tuple(sorted(numbers)))
    assert learned.shape(train) == TableShape((number, CategoryColumn(2)))
    np.testing.assert_array_equal(learned.columns.encode([{"n": 3, "c": "r"}]), learned.inputs[3:4])
