"""Some classes, some rows, a test part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import ConfigurationError
from training.data import Dataset, subset

LABELS = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3], [40, 30, 20, 10]))
DATA = Dataset(
    "letters",
    np.arange(100, dtype=np.uint8).reshape(100, 1, 1, 1),
    LABELS,
    ("a", "b", "c", "d"),
    test=range(80, 100),
)
PLAIN = Dataset("letters", DATA.inputs, LABELS, DATA.label_names)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=300), st.integers(0, 2**32), st.data())
def test_every_stretch_has_every_class_in_proportion(labels: list[int], seed: int, data: st.DataObject) -> None:
    array = np.array(labels)
    order = subset.stratified_order(array, np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(labels)))
    start = data.draw(st.integers(0, len(labels)))
    stretch = array[order[start : data.draw(st.integers(start, len(labels)))]]
    shares = np.bincount(array, minlength=5) / len(labels)
    # a stretch of places meets at most one stretch of each class more, or less, at both of its ends
    assert np.abs(np.bincount(stretch, minlength=5) - len(stretch) * shares).max() <= 2 * 5


def test_the_order_is_random() -> None:
    orders = {tuple(subset.stratified_order(LABELS, np.random.default_rng(seed)).tolist()) for seed in range(5)}
    assert len(orders) == 5


def test_classes_are_numbered_anew_in_the_order_given() -> None:
    data = subset.of_classes(DATA, ["d", "b"])
    rows = np.flatnonzero(np.isin(LABELS, [1, 3]))
    assert data.label_names == ("d", "b")
    assert data.inputs.ravel().tolist() == rows.tolist()
    np.testing.assert_array_equal(data.labels, (LABELS[rows] == 1).astype(int))
    assert [data.inputs[row].item() for row in data.test] == rows[rows >= 80].tolist()


@pytest.mark.parametrize("classes", [["a", "x"], ["a"], ["a", "a"], []])
def test_classes_that_cannot_work(classes: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="expected"):
        subset.of_classes(DATA, classes)


def test_some_rows_are_in_proportion_and_the_test_part_is_whole() -> None:
    data = subset.of_rows(DATA, 40, seed=3)
    assert len(data) == 60
    assert [data.inputs[row].item() for row in data.test] == list(range(80, 100))
    share = np.bincount(LABELS[:80]) / 80
    np.testing.assert_allclose(np.bincount(data.labels[:40]), 40 * share, atol=2)
    np.testing.assert_array_equal(data.inputs, subset.of_rows(DATA, 40, seed=3).inputs)
    assert not np.array_equal(data.inputs, subset.of_rows(DATA, 40, seed=4).inputs)


def test_a_test_part_is_set_apart_in_proportion() -> None:
    data = subset.with_test_rows(PLAIN, 20, seed=3)
    assert data.test == range(80, 100)
    assert sorted(data.inputs.ravel().tolist()) == list(range(100))
    assert np.bincount(data.labels[80:]).tolist() == [8, 6, 4, 2]
    np.testing.assert_array_equal(data.labels, LABELS[data.inputs.ravel()])


def test_rows_that_cannot_work() -> None:
    for rows in (0, 81):
        with pytest.raises(ConfigurationError, match="expected 1 … 80"):
            subset.of_rows(DATA, rows, seed=0)
    for rows in (0, 100):
        with pytest.raises(ConfigurationError, match="expected 1 … 99"):
            subset.with_test_rows(PLAIN, rows, seed=0)
    with pytest.raises(ConfigurationError, match="a test part of 20 rows"):
        subset.with_test_rows(DATA, 10, seed=0)
