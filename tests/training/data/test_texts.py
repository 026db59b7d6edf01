"""Texts in files with a label column."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from training import ConfigurationError, DataError
from training.data import DATASETS, Dataset

COLUMNS = {"text": "body", "label": "kind"}


def read(root: Path, file: str, **settings: Any) -> Dataset:
    return DATASETS["texts"](root, file=file, **(COLUMNS | settings))


def test_words_for_missing_values_are_words_in_texts(tmp_path: Path) -> None:
    """As they are where the service encodes them."""
    (tmp_path / "t.csv").write_text('body,kind\nNA,a\n?,b\nnull,a\n  nan ,b\n,a\n"two\nlines",a\n')
    data = read(tmp_path, "t.csv", length=2)
    assert data.vocabulary is not None
    assert data.texts is not None
    assert data.texts.tolist() == ["NA", "?", "null", "  nan ", "", "two\nlines"]
    assert [data.vocabulary.decode(row) for row in data.inputs] == ["na", "", "null", "nan", "", "two lines"]
    assert (data.vocabulary.encode(data.texts.tolist()) == data.inputs).all()


def test_many_files(tmp_path: Path) -> None:
    folder = tmp_path / "months"
    folder.mkdir()
    rows = [("the bill", "a", "x"), ("paid", "a", "y"), ("late", "b", "y"), ("", "b", None)]
    lines = [json.dumps(dict(zip(("body", "kind", "author"), row, strict=True))) + "\n" for row in rows]
    (folder / "1.ndjson").write_text("".join(lines[:2]))
    (folder / "2.ndjson.gz").write_bytes(gzip.compress("".join(lines[2:]).encode()))
    data = read(tmp_path, "months", group="author", length=3)
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert data.groups is not None
    assert data.groups.tolist() == [0, 1, 1, 2]
    assert data.texts is not None
    assert data.texts.tolist() == [text for text, _, _ in rows]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())]
    listed = f"{digests[0]}  1.ndjson\n{digests[1]}  2.ndjson.gz\n"
    assert data.sources == {"months": hashlib.sha256(listed.encode()).hexdigest()}


@pytest.mark.parametrize(
    ("text", "settings", "told"),
    [
        ("body,kind\na,x\n", {}, "All rows have the same label. Found: `x`"),
        ("body,kind\n", {}, "The file has no rows"),
        ("", {}, "The file is empty"),
        ("body,kind\na,\n", {}, "line 2, column kind: The label is missing"),
        ("body,kind,w\na,x,0\n", {"weight": "w"}, "line 2, column w: The weight is not valid"),
        ("body,kind\na,x\nb,y\n", {"group": "body"}, "'body' is the text and has another role"),
        ("body,kind\na,x\nb,y\n", {"text": "bdy"}, "no column `bdy`.*Did you mean `body`"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, text: str, settings: dict[str, Any], told: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ConfigurationError, match=told):
        read(tmp_path, "t.csv", **settings)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("hello")
    with pytest.raises(DataError, match=r"unknown ending\. Expected: \.csv, \.tsv, \.ndjson, \.jsonl, \.parquet"):
        read(tmp_path, "t.txt")
