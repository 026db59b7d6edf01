"""NDJSON and CSV: what is read, and what is refused by line and column."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InputError, InputTypeError, InputValueError, MalformedBodyError
from service.row_files.lines import CSV_TYPE, NDJSON_TYPE, Record, read_lines

COLUMNS = ("reference", "label", "source")


def read(body: bytes, media_type: str, at_most: int = 1000) -> list[Record]:
    return read_lines(body, media_type, columns=COLUMNS, at_most=at_most)


CELLS = st.dictionaries(
    st.sampled_from(COLUMNS), st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1), min_size=1
)


@given(st.lists(CELLS, min_size=1))
def test_both_formats_give_back_what_was_written(rows: list[dict[str, str]]) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert [record.fields for record in read(lines.encode(), NDJSON_TYPE)] == rows
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    assert [record.fields for record in read(stream.getvalue().encode(), CSV_TYPE)] == rows


def test_lines_are_counted_as_an_editor_does() -> None:
    body = b'\xef\xbb\xbflabel,reference\r\n\r\n7,a\r\n"8","two\r\nlines"\r\n9,\r\n'
    found = [(record.line, record.fields) for record in read(body, CSV_TYPE)]
    assert found == [
        (3, {"label": "7", "reference": "a"}),
        (4, {"label": "8", "reference": "two\r\nlines"}),
        (6, {"label": "9"}),
    ]
    body = b'\xef\xbb\xbf{"label": "7"}\r\n\n   \n{"label": 8}'
    assert [(record.line, record.fields) for record in read(body, NDJSON_TYPE)] == [
        (1, {"label": "7"}),
        (4, {"label": 8}),
    ]


@pytest.mark.parametrize(
    ("body", "media_type", "kind", "where"),
    [
        (b'{"label": "7"}\n{"label": 8,}\n', NDJSON_TYPE, MalformedBodyError, "line 2, column 12"),
        (b'{"label": "7"}\n{"label": NaN}', NDJSON_TYPE, MalformedBodyError, "line 2, column 11"),
        (b'\n{"label": "\xff"}', NDJSON_TYPE, MalformedBodyError, "line 2, column 1"),
        (b'{"label": "7"}\n{"label" : "7", "label": "8"}', NDJSON_TYPE, MalformedBodyError, "line 2"),
        (b"[" * 100_000, NDJSON_TYPE, MalformedBodyError, None),
        (b"\n[7]\n", NDJSON_TYPE, InputTypeError, "line 2"),
        (b"", NDJSON_TYPE, InputValueError, "line 1"),
        (b"\n\n", NDJSON_TYPE, InputValueError, "line 1"),
        (b"", CSV_TYPE, InputValueError, "line 1"),
        (b"label,source\n", CSV_TYPE, InputValueError, "line 1"),
        (b"\nlabel,lable\n7,8", CSV_TYPE, InputValueError, "line 2, column lable"),
        (b"label,label\n7,8", CSV_TYPE, InputValueError, "line 1, column label"),
        (b"label;source\n7;8", CSV_TYPE, InputValueError, "line 1, column label;source"),
        (b"label,source\n7,a\n8\n", CSV_TYPE, MalformedBodyError, "line 3, column 2"),
        (b"label,source\n7,a,b\n", CSV_TYPE, MalformedBodyError, "line 2, column 3"),
        (b'label,source\n7,a\n"8,b\n', CSV_TYPE, MalformedBodyError, "line 3"),
        (b'label,source\n"7"x,a\n', CSV_TYPE, MalformedBodyError, "line 2"),
        (b"label,source\n7,\xc3\xa4\xff\n", CSV_TYPE, MalformedBodyError, "line 2, column 4"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, media_type: str, kind: type[InputError], where: str | None) -> None:
    with pytest.raises(kind) as caught:
        read(body, media_type)
    assert where is None or caught.value.where == where
    assert caught.value.expected
    assert len(str(caught.value.found)) < 200


@pytest.mark.parametrize("media_type", [NDJSON_TYPE, CSV_TYPE])
def test_the_first_item_too_many_is_named(media_type: str) -> None:
    body = b'{"label": "7"}\n' * 3 if media_type == NDJSON_TYPE else b"label\n7\n\n7\n7\n"
    assert len(read(body, media_type, at_most=3)) == 3
    with pytest.raises(InputValueError) as caught:
        read(body, media_type, at_most=2)
    assert caught.value.where == ("line 3" if media_type == NDJSON_TYPE else "line 5")


def test_a_place_names_line_and_field() -> None:
    (record,) = read(b"label\n7\n", CSV_TYPE)
    assert (record.place(), record.place("label")) == ("line 2", "line 2, column label")
    (line,) = read(b'{"label": "7"}', NDJSON_TYPE)
    assert line.place("label") == "line 1, field label"


def test_a_cell_may_be_as_long_as_a_line() -> None:
    cell = "x" * 200_000
    body = f"label,reference\n7,{cell}\n".encode()
    assert [record.fields["reference"] for record in read(body, CSV_TYPE)] == [cell]
