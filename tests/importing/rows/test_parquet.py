"""Parquet files of rows: odd types, and damages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arro3.core import Array, DataType, Table, list_array
from arro3.io import write_parquet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from importing.errors import RowsError
from importing.rows import parquet, read_rows

N = 40
PLAIN = {"y": Array(["a", "b"] * (N // 2), type=DataType.string())}
ODD: dict[str, Any] = {
    "decimal": Array([1.5] * N, type=DataType.float64()).cast(DataType.decimal128(10, 2)),
    "dictionary": Array(["x", None] * (N // 2), type=DataType.string()).cast(
        DataType.dictionary(DataType.int32(), DataType.string())
    ),
    "large": Array(["é", None] * (N // 2), type=DataType.large_string()),
    "zoned": Array([*range(N)], type=DataType.int64()).cast(DataType.timestamp("ns", tz="Europe/Berlin")),
    "nulls": Array([None] * N, type=DataType.float64()),
    "truth": Array([True, None] * (N // 2), type=DataType.bool()),
    "whole": Array([2**62, None] * (N // 2), type=DataType.int64()),
    "binary": Array([b"x"] * N, type=DataType.binary()),
    "clock": Array([1] * N, type=DataType.int64()).cast(DataType.time64("us")),
    "nested": list_array(Array.from_numpy(np.arange(N + 1, dtype=np.int32)), Array.from_numpy(np.arange(float(N)))),
}
REFUSED = {"binary": "Binary", "clock": "Time64", "nested": "List"}


@pytest.mark.parametrize("name", ODD)
def test_each_type_of_parquet_is_read_or_refused_with_its_column(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows.parquet"
    write_parquet(Table.from_pydict({**PLAIN, name: ODD[name]}), path)
    if name in REFUSED:
        with pytest.raises(RowsError, match=rf"column {name}: The column .*{REFUSED[name]}"):
            read_rows(path, label="y")
        return
    assert len(read_rows(path, label="y").features[name]) == N


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    cut=st.floats(0, 1) | st.just(1.0),
)
def test_any_damaged_parquet_is_rows_or_refused(tmp_path: Path, changes: list[tuple[float, int]], cut: float) -> None:
    path = tmp_path / "rows.parquet"
    write_parquet(Table.from_pydict(PLAIN | {name: ODD[name] for name in ODD.keys() - REFUSED}), path)
    whole = bytearray(path.read_bytes())
    for place, byte in changes:
        whole[4 + int(place * (len(whole) - 9))] = byte
    path.write_bytes(whole[: int(cut * len(whole))])
    refused = None
    try:
        parquet.refuse_crashing([path])
        read_rows(path, label="y")
    except RowsError as error:
        refused = str(error)
    assert refused is None or str(path) in refused


def test_parquet_that_ends_the_process_of_its_reader_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_parquet(
        Table.from_pydict({"y": Array(["a", "b"] * 4, type=DataType.string())}), path, compression="uncompressed"
    )
    whole, codes = path.read_bytes(), b"\x10\x01\x01\x03\xaa"
    assert codes in whole
    path.write_bytes(whole.replace(codes, b"\x10\x01\xff\x03\xaa"))  # a code of 255 bits
    with pytest.raises(RowsError, match=r"rows.parquet: The file is not a valid Parquet file: it crashes its reader"):
        parquet.refuse_crashing([path])
