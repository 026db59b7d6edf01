from __future__ import annotations

import numpy as np
import pytest

from calibrators.chunks import class_columns, row_maxima, row_sums


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3, 7, 8, 9, 31, 32, 33, 200])
def test_rows_are_reduced_alike_however_many_there_are(classes, dtype):
    chunk = np.random.default_rng(classes).normal(0, 5, (300, classes)).astype(dtype)
    chunk[7, 1] = -np.inf
    maxima, sums = row_maxima(chunk), row_sums(np.exp(chunk))
    np.testing.assert_array_equal(maxima, chunk.max(axis=1, keepdims=True))
    np.testing.assert_array_equal(sums, np.concatenate([row_sums(np.exp(chunk[i : i + 1])) for i in range(300)]))
    np.testing.assert_allclose(sums, np.exp(chunk).sum(axis=1, keepdims=True), rtol=1e-5)
    chunk[7, 1] = np.nan
    assert np.isnan(row_maxima(chunk)[7])


@pytest.mark.parametrize("budget", [1, 5_000, 32 * 2**20])
@pytest.mark.parametrize("layout", ["C", "F", "strided", "memory map"])
def test_every_column_once_whatever_fits(budget, layout, monkeypatch, tmp_path):
    monkeypatch.setattr("calibrators.chunks._BLOCK_BYTES", budget)
    matrix = np.random.default_rng(0).normal(size=(300, 700)).astype(np.float32)
    np.save(tmp_path / "matrix.npy", matrix)
    read = {
        "C": matrix,
        "F": np.asfortranarray(matrix),
        "strided": np.repeat(matrix, 2, axis=1)[:, ::2],
        "memory map": np.load(tmp_path / "matrix.npy", mmap_mode="r"),
    }[layout]
    seen = []
    for k, column in class_columns(read):
        seen.append(k)
        assert column.dtype == np.float32
        assert column.flags.c_contiguous
        np.testing.assert_array_equal(column, matrix[:, k])
    assert seen == list(range(700))
