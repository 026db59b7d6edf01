"""Parquet files of rows that are damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from arro3.core import Array, DataType, Table
from arro3.io import write_parquet

from service.bulk.inputs import find
from service.commands.bulk.tables import read_rows
from service.errors import MalformedBodyError
from service.row_files.parquet_opening import check_opening
from service.row_files.parquet_rows import read_parquet_rows
from tests.damage import damaged


def test_a_damaged_file_is_told_by_the_error_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its reader panics over some of these files, and Rust prints a panic before it is raised."""
    path = tmp_path / "rows.parquet"
    write_parquet(Table.from_pydict({"a": Array.from_numpy(np.arange(500.0))}), path)
    errors = []
    for _ in damaged(path):
        try:
            list(read_parquet_rows(path))
        except MalformedBodyError as error:
            errors.append(error)
    assert all("not a valid Parquet file" in str(error) for error in errors)
    assert len(errors) > 20
    assert [type(error.__cause__).__name__ for error in errors].count("PanicException") > 5
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("nested", "row_groups", "ends_by"), [(0, 2**31 - 1, "SIGABRT"), (10_000, 0, "SIGSEGV")])
def test_a_file_over_which_the_reader_crashes_is_named(
    tmp_path: Path, nested: int, row_groups: int, ends_by: str
) -> None:
    """Its footer claims a list that no memory holds, or nests columns deeper than the stack."""
    (good := tmp_path / "good.parquet").write_bytes(b"")
    (path := tmp_path / "rows.parquet").write_bytes(crashing(nested, row_groups))
    with pytest.raises(MalformedBodyError, match="its reader crashed") as caught:
        check_opening([good, path, good])
    assert (caught.value.where, caught.value.found) == (str(path), ends_by)
    for read in (lambda: find(str(path)), lambda: read_rows(path)):
        with pytest.raises(MalformedBodyError, match="its reader crashed"):
            read()


def crashing(nested: int, row_groups: int) -> bytes:
    """A file of a footer alone (Thrift's compact protocol): a column in nested groups, and a list of row groups."""
    schema = [b"\x48\x01r\x15\x02\x00", *[b"\x35\x02\x18\x01g\x15\x02\x00"] * nested, b"\x15\x0a\x25\x02\x18\x01a\x00"]
    footer = (
        b"\x15\x02\x19\xfc"
        + varint(len(schema))
        + b"".join(schema)
        + b"\x16\x00\x19\xfc"
        + varint(row_groups)
        + b"\x00"
    )
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def test_times_of_a_day_and_durations_are_no_reason_to_fail(tmp_path: Path) -> None:
    path, ones = tmp_path / "rows.parquet", Array([1, 1], type=DataType.int64())
    columns = {"clock": ones.cast(DataType.time64("us")), "span": ones.cast(DataType.duration("us"))}
    write_parquet(Table.from_pydict(columns), path)
    (batch,) = read_parquet_rows(path)
    assert {name: type(values[0]).__name__ for name, values in batch.columns.items()} == {
        "clock": "time",
        "span": "timedelta",
    }


def test_a_file_is_read_where_standard_error_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_parquet(Table.from_pydict({"a": Array.from_numpy(np.arange(5.0))}), path)
    code = (
        "import sys; from pathlib import Path; from service.row_files.parquet_rows import read_parquet_rows; "
        "print([batch.columns['a'].tolist() for batch in read_parquet_rows(Path(sys.argv[1]))])"
    )
    run = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", code, str(path)]
    found = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert found == "[[0.0, 1.0, 2.0, 3.0, 4.0]]\n"
