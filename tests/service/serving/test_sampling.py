"""The sample of the hot path: every row equally likely, bounded, and begun anew when taken."""

from __future__ import annotations

import numpy as np

from bundle import InputSpec
from service.serving.sampling import Sample


def spec(columns: int = 1) -> InputSpec:
    return InputSpec(kind="array", dtype="float32", shape=(columns,))


def test_few_rows_are_all_kept_in_order() -> None:
    sample = Sample(spec())
    rows = np.arange(300, dtype=np.float32)[:, None]
    for start in range(0, 300, 60):
        sample.add(rows[start : start + 60])
    taken = sample.take()
    assert (taken.rows == rows).all()
    assert taken.rate == 1.0
    empty = sample.take()
    assert (len(empty.rows), empty.rate) == (0, 0.0)


def test_every_row_of_many_is_equally_likely() -> None:
    rows = np.arange(20_000, dtype=np.float32)[:, None]
    kept = np.zeros(20)
    for seed in range(25):
        sample = Sample(spec(), seed=seed)
        for start in range(0, len(rows), 800):
            sample.add(rows[start : start + 800])
        taken = sample.take()
        assert len(np.unique(taken.rows)) == len(taken.rows) == 2048
        assert taken.rate == 2048 / 20_000
        kept += np.bincount((taken.rows[:, 0] // 1000).astype(int), minlength=20)
    expected = 25 * 2048 / 20
    assert (((kept - expected) ** 2 / expected).sum()) < 45, "chi-square of 19 degrees of freedom, 0.1 % level"


def test_wide_rows_take_no_more_than_their_memory() -> None:
    sample = Sample(spec(100_000))
    sample.add(np.zeros((100, 100_000), np.float32))
    assert sample.take().rows.nbytes <= 8 << 20
