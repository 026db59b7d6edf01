from __future__ import annotations

import numpy as np
import pytest

from calibrators import class_columns as module
from calibrators.class_columns import class_columns


@pytest.mark.parametrize("budget", [1, 5_000, 32 * 2**20])
@pytest.mark.parametrize("layout", ["C", "F", "strided", "memory map"])
def test_every_column_once_whatever_fits(budget, layout, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_BLOCK_BYTES", budget)
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
