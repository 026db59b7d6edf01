"""How many rows a run will have: known from Parquet and npz at once, estimated from the bytes of lines."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arro3.core import (
    Array,
    DataType,
    Field,
    RecordBatch,
    RecordBatchReader,
    Schema,
    fixed_size_list_array,
    struct_array,
)
from arro3.io import write_parquet

from service.bulk.extent import Extent, rows_of_npz, rows_of_parquet
from service.bulk.inputs import Source, find

ROWS = 5_000


def parquet(rows: int, **options: Any) -> bytes:
    """A file with texts, times, lists and structs, whose schema stands before the number in the footer."""
    columns = {
        "n": Array(np.arange(rows)),
        "text": Array([f"row {row}" for row in range(rows)], DataType.string()),
        "at": Array(np.arange(rows)).cast(DataType.timestamp("us", tz="UTC")),
        "list": fixed_size_list_array(Array(np.zeros(2 * rows)), 2),
        "struct": struct_array([Array(np.arange(rows))], fields=[Field("a", DataType.int64(), nullable=False)]),
    }
    schema = Schema([Field(name, column.type, nullable=True) for name, column in columns.items()])
    batch = RecordBatch.from_arrays([*columns.values()], schema=schema)
    stream = io.BytesIO()
    write_parquet(RecordBatchReader.from_batches(schema, [batch]), stream, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    "options", [{}, {"max_row_group_size": 7, "key_value_metadata": {"a": "b" * 300}}], ids=["", "groups"]
)
@pytest.mark.parametrize("rows", [0, 1, 200])
def test_parquet_says_it_in_its_footer(rows: int, options: dict[str, Any]) -> None:
    assert rows_of_parquet(io.BytesIO(parquet(rows, **options))) == rows


def test_npz_says_it_in_its_first_header() -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, inputs=np.zeros((37, 8, 8)), group=np.array(["a"] * 37))
    assert rows_of_npz(stream) == 37


def test_a_damaged_file_says_nothing_and_does_not_hang() -> None:
    whole = parquet(3)
    for content in (
        b"",
        b"PAR1",
        whole[:-5],
        b"\x29\xf9" + b"\xff" * 9 + b"\x01" + (2).to_bytes(4, "little") + b"PAR1",
    ):
        assert rows_of_parquet(io.BytesIO(content)) is None
        assert rows_of_npz(io.BytesIO(content)) is None
    hostile = bytes([0x29, 0xF7]) + b"\xff" * 8 + b"\x7f"  # a list of 2**62 numbers
    assert rows_of_parquet(io.BytesIO(hostile + len(hostile).to_bytes(4, "little") + b"PAR1")) is None


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "ndjson", "parquet", "npz"])
def test_it_is_near_the_truth_from_the_first_part_on(ending: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        file = tmp_path / f"{name}.{ending}"
        if ending == "parquet":
            file.write_bytes(parquet(ROWS))
        elif ending == "npz":
            np.savez(file, inputs=rng.random((ROWS, 3)))
        else:
            lines = [f'{{"x": {value}}}' if ending == "ndjson" else f"{value}" for value in rng.random(ROWS)]
            text = "\n".join((["x"] if ending.startswith("csv") else []) + lines).encode()
            file.write_bytes(gzip.compress(text) if ending == "csv.gz" else text)
    sources = find(str(tmp_path))
    extent = Extent(source.size for source in sources)
    assert extent.rows is None
    found: list[int | None] = []
    for source in sources:
        for part in source.parts(0, 500):
            extent.saw(*part.seen)
            found.append(extent.rows)
        extent.next_file()
    error = 0 if ending in ("parquet", "npz") else 0.05 * ROWS
    if ending == "csv.gz":  # read a MiB ahead, which is more than the file
        del found[:-1]
    assert all(rows is not None and abs(rows - 2 * ROWS) <= error for rows in found)
    assert extent.rows == 2 * ROWS


def test_without_the_size_of_a_file_nothing_is_said(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x\n1\n2\n")
    (part,) = Source("a.csv", str(file)).parts(0, 10)
    extent = Extent([None])
    extent.saw(*part.seen)
    assert extent.rows is None
