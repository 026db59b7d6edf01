from __future__ import annotations

import numpy as np
import pytest

from calibrators.chunks import class_columns, probability_chunks, row_maxima, row_sums, top_class_chunks
from calibrators.errors import CalibrationDataError


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


@pytest.mark.parametrize("layout", ["C", "F", "strided"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_top_classes_are_those_of_argmax(dtype, layout):
    rng = np.random.default_rng(0)
    matrix = rng.multinomial(8, np.full(40, 1 / 40), 500).astype(dtype) / 8  # with many ties
    matrix[7] = np.eye(40)[3]
    matrix[250][matrix[250] == 0] = -0.0
    read = {"C": matrix, "F": np.asfortranarray(matrix), "strided": np.repeat(matrix, 2, axis=1)[:, ::2]}[layout]
    found = [(rows, top) for rows, _, top in top_class_chunks(read, range(3, 490), 1_000)]
    assert [rows.start for rows, _ in found] == list(range(3, 490, 25))
    np.testing.assert_array_equal(np.concatenate([top for _, top in found]), np.argmax(matrix[3:490], axis=1))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("entry", [np.nan, -np.nan, np.inf, -np.inf, 1.5, -0.25, 0.5])
@pytest.mark.filterwarnings("error")
def test_rows_that_are_no_distributions_are_refused_alike(entry, dtype):
    matrix = np.full((300, 40), 1 / 40, dtype)
    matrix[123, 4] = entry
    with pytest.raises(CalibrationDataError) as by_all:
        list(probability_chunks(matrix))
    with pytest.raises(CalibrationDataError) as by_top:
        list(top_class_chunks(matrix, range(300), 1_000))
    assert "123" in str(by_all.value)
    assert str(by_top.value) == str(by_all.value)
