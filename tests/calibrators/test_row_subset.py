from __future__ import annotations

import numpy as np
import pytest

from calibrators import CALIBRATORS, PriorShift
from calibrators.row_subset import RowSubset, take_rows


def test_a_subset_reads_as_the_copy_does():
    matrix = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    index = np.array([0, 3, 4, 17, 49])
    subset, copy = RowSubset(matrix, index), matrix[index]
    assert (subset.shape, subset.dtype, subset.size, subset.ndim, subset.itemsize) == ((5, 4), np.float32, 20, 2, 4)
    assert len(subset) == 5
    for key in (slice(1, 3), slice(None, None, 2), np.array([4, 0]), (slice(None), 2), (slice(1, 4), slice(0, 2))):
        np.testing.assert_array_equal(subset[key], copy[key])


def test_few_rows_are_copied(monkeypatch):
    matrix = np.zeros((10, 3))
    assert isinstance(take_rows(matrix, np.arange(4)), np.ndarray)
    monkeypatch.setattr("calibrators.row_subset._ENTRIES_COPIED", 11)
    assert isinstance(take_rows(matrix, np.arange(4)), RowSubset)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", CALIBRATORS)
def test_fits_of_rows_too_many_to_copy_are_the_same(name, classes, world, monkeypatch):
    logits, labels = world(400, classes, 1.5, dtype=np.float32)
    weight = np.random.default_rng(0).integers(0, 3, 400)
    copied = CALIBRATORS[name]().fit(logits, labels, weight).to_dict()
    monkeypatch.setattr("calibrators.row_subset._ENTRIES_COPIED", 0)
    assert CALIBRATORS[name]().fit(logits, labels, weight).to_dict() == copied


def test_so_are_priors_of_a_target(world, monkeypatch):
    logits, labels = world(400, 3, 1.5)
    weight = np.random.default_rng(0).integers(0, 3, 400)
    copied = PriorShift().fit(logits, labels).adapt(logits, weight).to_dict()
    monkeypatch.setattr("calibrators.row_subset._ENTRIES_COPIED", 0)
    assert PriorShift().fit(logits, labels).adapt(logits, weight).to_dict() == copied
