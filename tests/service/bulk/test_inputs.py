"""Files are cut into parts between rows."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from service.bulk.blocks import blocks_of
from service.bulk.inputs import Source
from service.errors import MalformedBodyError


@pytest.mark.parametrize(("name", "delimiter", "other"), [("rows.csv", ",", "\t"), ("rows.tsv", "\t", ",")])
def test_a_quoted_cell_of_several_lines_stays_in_one_part(
    tmp_path: Path, name: str, delimiter: str, other: str
) -> None:
    rows = [["1", '"two\nlines"'], ["2", f'5{other}"6'], ["3", "seven"]]
    lines = [delimiter.join(row) + "\n" for row in [["a", "b"], *rows]]
    file = tmp_path / name
    file.write_text("".join(lines))
    parts = list(Source(name, str(file)).parts(0, 1))
    assert [part.content.decode() for part in parts] == lines[1:]
    assert [part.first for part in parts] == [2, 4, 5]


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.csv.GZ"])
def test_a_compressed_file_is_unpacked_once_and_named_by_its_address(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    (part,) = Source(name, str(file)).parts(0, 10)
    (block,) = blocks_of(part, ["a"], [])
    assert dict(block.columns) == {"a": ("1", "3"), "b": ("2", "4")}
    torn = replace(part, file=f"s3://bucket/{name}", content=b"1,2\n3\n")
    with pytest.raises(MalformedBodyError) as refused:
        list(blocks_of(torn, ["a"], []))
    assert refused.value.where == f"s3://bucket/{name}, line 3"
