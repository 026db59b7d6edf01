"""CSV tables, and the preset for vehicle claims."""

from __future__ import annotations

import gzip
import hashlib
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from importing.rows import csv_file
from training import ConfigurationError, DataError, scratch
from training.data import DATASETS, Dataset, table_rows

TEXT = """id,age,colour,zip,outcome
1,40,red,1010,yes
2,,blue,1020,no
3,35.5,NA,1010,no

4,20," red ",1030,yes
"""


def read(tmp_path: Path, text: str = TEXT, **settings: Any) -> Dataset:
    (tmp_path / "own.csv").write_text(text, encoding="utf-8")
    return DATASETS["table"](tmp_path, **({"file": "own.csv", "label": "outcome", "drop": ["id"]} | settings))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def categories(data: Dataset) -> dict[str, tuple[str, ...] | None]:
    assert data.columns is not None
    return {column.name: column.categories for column in data.columns.columns}


def test_numbers_categories_and_labels(tmp_path: Path) -> None:
    data = read(tmp_path)
    assert data.kind == "array"
    assert categories(data) == {"age": None, "colour": ("blue", "red"), "zip": None}
    expected = np.array([[40, 2, 1010], [np.nan, 1, 1020], [35.5, 0, 1010], [20, 2, 1030]], np.float32)
    np.testing.assert_array_equal(data.inputs, expected)
    assert data.label_names == ("no", "yes")
    assert data.labels.tolist() == [1, 0, 0, 1]
    assert list(data.sources) == ["own.csv"]


def test_numbers_can_be_names_and_classes_can_be_named(tmp_path: Path) -> None:
    data = read(tmp_path, categorical=["zip"], label_names=["lost", "won"])
    assert categories(data)["zip"] == ("1010", "1020", "1030")
    assert data.label_names == ("lost", "won")


def test_labels_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    data = read(tmp_path, "x,outcome\n1,10\n2,9\n3,-1\n", drop=[])
    assert data.label_names == ("-1", "9", "10")
    assert data.labels.tolist() == [2, 1, 0]


def test_the_training_rows_alone_teach_the_categories(tmp_path: Path) -> None:
    data = read(tmp_path, categorical=["zip"]).learned_from(np.array([0, 2]))
    assert categories(data) == {"age": None, "colour": ("red",), "zip": ("1010",)}
    assert data.inputs[:, 1].tolist() == [1, 0, 0, 1]
    assert data.inputs[:, 2].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "The file is empty"),
        ("age;outcome\n1;a\n2;b\n", "has one column.*separated by commas"),
        ("age,outcome\n", "has no rows"),
        ("age,age,outcome\n1,2,a\n", "Duplicate column `age`"),
        ("age,outcome\n1,a\n2\n", "line 3: .*1 cells"),
        ("age,outcome\n1,a\n2,b,c\n", "line 3: .*3 cells"),
        ("age,outcome\n1,a\n2,\n", "line 3, column outcome: The label is missing"),
        ("age,outcome\n1,a\n2,a\n", "column outcome: All rows have the same label"),
        ('age,outcome\n1,"a\n', "line 2: A quote is opened and not closed"),
        ("age,outcome\r1,a\r", "line 1: The line contains a carriage return"),
        ("age,outcome\n1,a\ninf,b\n", "line 3, column age: The number is not finite. Found: 'inf'"),
        ("age,outcome\n1e99,a\n2,b\n", "line 2, column age: The number is too large"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        read(tmp_path, text, drop=[])


def test_other_bytes_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("age,outcome\n1,grün\n2,b\n".encode("latin-1"))
    for file, told in (("latin.csv", "line 2: The file is not UTF-8"), ("none.csv", "none.csv is missing")):
        with pytest.raises(DataError, match=told):
            DATASETS["table"](tmp_path, file=file, label="outcome")


@pytest.mark.parametrize(
    "settings",
    [
        {"file": None},
        {"label": None},
        {"label": "result"},
        {"drop": ["number"]},
        {"categorical": ["number"]},
        {"label_names": ["one"]},
    ],
)
def test_settings_that_cannot_work(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        read(tmp_path, **settings)


def test_vehicle_claims(tmp_path: Path) -> None:
    folder = tmp_path / "vehicle-fraud"
    folder.mkdir()
    lines = ["Make,RepNumber,PolicyNumber,Age,FraudFound_P", "Honda,3,1,21,0", "Ford,12,2,30,1", "Honda,3,3,0,0"]
    (folder / "fraud_oracle.csv").write_text("\n".join(lines) + "\n")
    data = DATASETS["vehicle_fraud"](tmp_path)
    assert categories(data) == {"Make": ("Ford", "Honda"), "RepNumber": ("12", "3"), "Age": None}
    assert data.label_names == ("genuine", "fraud")
    assert data.labels.tolist() == [0, 1, 0]
    (folder / "fraud_oracle.csv").unlink()
    with pytest.raises(DataError, match="vehicle-claim-fraud-detection"):
        DATASETS["vehicle_fraud"](tmp_path)


def parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("arro3.io")
    from pyarrow import parquet as files

    files.write_table(arrow.table(columns), path)


def test_parquet_and_csv_are_read_alike(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "age": [40, None, 35, 20],
        "share": [0.5, 2.0, float("nan"), 1e-3],
        "colour": ["red", "blue", None, " red "],
        "code": ["1", "2", "1", None],
        "outcome": ["yes", "no", "no", "yes"],
        "weight": [1.0, 2.0, 1.0, 0.5],
        "card": ["a", None, "a", "b"],
    }
    parquet(tmp_path / "own.parquet", columns)
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in zip(*columns.values(), strict=True)]
    settings: dict[str, Any] = {"drop": [], "weight": "weight", "group": "card", "categorical": ["code"]}
    spelled = read(tmp_path, "\n".join([",".join(columns), *lines]), **settings)
    typed = DATASETS["table"](tmp_path, file="own.parquet", label="outcome", weight="weight", group="card")
    assert typed.columns == spelled.columns
    np.testing.assert_array_equal(typed.inputs, spelled.inputs)
    for name in ("labels", "weights", "groups"):
        np.testing.assert_array_equal(getattr(typed, name), getattr(spelled, name))
    assert typed.label_names == spelled.label_names


@pytest.mark.parametrize("block", [1, 2, 20_000])
def test_texts_that_come_late_make_a_column_of_categories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(csv_file, "_BLOCK", block)
    data = read(tmp_path, "size,shop,outcome\n1,2,a\n,10,b\n3,x,a\n1e99,02,b\n? ,inf,b\ntall,2,a\n", drop=[])
    assert categories(data) == {"size": ("1", "1e99", "3", "tall"), "shop": ("02", "10", "2", "inf", "x")}
    assert np.asarray(data.inputs).tolist() == [[1, 3], [0, 2], [3, 5], [2, 1], [0, 4], [4, 3]]


def test_many_files_are_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "months"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    (folder / "b.csv").write_text("x,kind,outcome\n3,old,a\n")
    (folder / "a.csv").write_text("x,kind,outcome\n1,new,a\n2,,b\n")
    for file, root in (("months", tmp_path), ("months/*.csv", tmp_path), (str(folder / "?.csv"), None)):
        data = DATASETS["table"](root, file=file, label="outcome")
        assert np.asarray(data.inputs).tolist() == [[1, 1], [2, 0], [3, 2]]
        lines = "".join(f"{digest(folder / name)}  {name}\n" for name in ("a.csv", "b.csv"))
        assert list(data.sources.values()) == [hashlib.sha256(lines.encode()).hexdigest()]
    (folder / "README.md").write_text("About these files")
    (folder / "empty.tsv").mkdir()
    (tmp_path / "months [2]").mkdir()
    (tmp_path / "months [2]" / "a.csv").write_text("x,kind,outcome\n1,new,a\n2,,b\n")
    for file, count in (("months", 3), ("m*/?.csv", 5), ("months [2]/*.csv", 2)):
        data = DATASETS["table"](tmp_path, file=file, label="outcome")
        assert len(data) == count
        assert list(data.sources) == [file]
    with pytest.raises(DataError, match=r"no file that ends in \.csv.* is at .*months \[\[\]"):
        DATASETS["table"](tmp_path, file="months [[]*/a.csv", label="outcome")
    for text, told in (
        ("x,sort,outcome\n3,old,a\n", r"c\.csv: The file has no column `kind`, which the first rows have"),
        ("x,kind,sort,outcome\n3,old,1,a\n", r"c\.csv: The file has column `sort`, which the first rows lack"),
        ("", r"c\.csv: The file is empty"),
    ):
        (folder / "c.csv").write_text(text)
        with pytest.raises(DataError, match=told):
            DATASETS["table"](tmp_path, file="months", label="outcome")
    (folder / "c.csv").unlink()
    parquet(folder / "d.parquet", {"x": [1], "kind": ["new"], "outcome": ["a"]})
    with pytest.raises(DataError, match=r"has files that end in \.csv and in \.parquet"):
        DATASETS["table"](tmp_path, file="months", label="outcome")
    with pytest.raises(DataError, match="no file that ends in"):
        DATASETS["table"](tmp_path, file="months/*.tsv", label="outcome")
    (folder / "d.parquet").unlink()
    (tmp_path / "a.ndjson").write_text('{"x": 1, "outcome": "a"}')
    (tmp_path / "b.jsonl").write_text('{"x": 2, "outcome": "b"}')  # the same format under another name
    assert len(DATASETS["table"](tmp_path, file="*.*", label="outcome")) == 2
    (folder / "c.csv").symlink_to("a.csv")
    with pytest.raises(DataError, match="months has links to a file that is there as well"):
        DATASETS["table"](tmp_path, file="months", label="outcome")
    with pytest.raises(DataError, match="the path of the file is empty"):
        DATASETS["table"](tmp_path, file="", label="outcome")


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".ndjson", ".parquet"])
def test_each_format_gives_the_same_table_and_its_digest(tmp_path: Path, ending: str) -> None:
    columns: dict[str, list[Any]] = {"x": [1.5, None, 3.0], "kind": ["new", None, "old"], "outcome": ["a", "b", "a"]}
    rows = list(zip(*columns.values(), strict=True))
    path, mark = tmp_path / f"own{ending}", "\t" if ending == ".tsv" else ","
    if ending == ".parquet":
        parquet(path, columns)
    elif ending == ".ndjson":
        path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    else:
        lines = [mark.join("" if cell is None else str(cell) for cell in row) for row in [tuple(columns), *rows]]
        text = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(text) if ending == ".csv.gz" else text)
    data = DATASETS["table"](tmp_path, file=path.name, label="outcome")
    np.testing.assert_array_equal(data.array, np.array([[1.5, 1], [np.nan, 0], [3, 2]], np.float32))
    assert categories(data) == {"x": None, "kind": ("new", "old")}
    assert data.sources == {path.name: digest(path)}


def test_labels_of_files_with_other_types_are_the_same_classes(tmp_path: Path) -> None:
    parquet(tmp_path / "1.parquet", {"x": [1, 2], "y": [3, 4], "outcome": [0, 1]})
    parquet(tmp_path / "2.parquet", {"x": [3, 4], "y": [3, 4], "outcome": [0.0, 1.0]})
    data = DATASETS["table"](tmp_path, file="*.parquet", label="outcome")
    assert data.label_names == ("0", "1")
    assert data.labels.tolist() == [0, 1, 0, 1]
    grouped = DATASETS["table"](tmp_path, file="*.parquet", label="y", group="outcome")
    assert grouped.groups is not None
    assert grouped.groups.tolist() == [0, 1, 0, 1]


def test_codes_of_files_with_other_types_are_the_same_categories(tmp_path: Path) -> None:
    parquet(tmp_path / "1.parquet", {"zip": [10115, 20095, 7], "outcome": ["a", "b", "a"]})
    parquet(tmp_path / "2.parquet", {"zip": [10115.0, None, 1.5], "outcome": ["a", "b", "a"]})
    data = DATASETS["table"](tmp_path, file="*.parquet", label="outcome", categorical=["zip"])
    assert categories(data) == {"zip": ("1.5", "10115", "20095", "7")}
    assert data.array[:, 0].tolist() == [2, 3, 4, 2, 0, 1]
    assert data.columns is not None
    cells = [10115, 10115.0, "10115", "10115.0", " 10115.00", "7.0", "1.50", 20095.5]
    encoded = data.columns.encode([{"zip": cell} for cell in cells])
    assert encoded[:, 0].tolist() == [2, 2, 2, 2, 2, 4, 0, 0]


def test_whole_numbers_that_float32_makes_equal_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [f"{2**24 + row},{2**24 + 2 * row},{2**24 + row}.5,{row % 2}" for row in range(20)]
    (tmp_path / "own.csv").write_text("\n".join(["near,exact,fraction,y", *rows]))
    DATASETS["table"](tmp_path, file="own.csv", label="y")
    told = [line for line in caplog.messages if "float32" in line]
    assert len(told) == 1
    assert told[0].startswith("`near` has different whole numbers")
    assert "such as 16777216 and 16777217" in told[0]


def test_parquet_that_is_no_table(tmp_path: Path) -> None:

    day = datetime(2026, 1, 1)  # noqa: DTZ001 — as Parquet files have them
    for columns, told in (
        ({"x": [1.0, 1e300], "outcome": ["a", "b"]}, "row 2, column x: The number is too large"),
        ({"x": [day, day], "outcome": ["a", "b"]}, "column x: The column holds times"),
        ({"x": [1, 2], "outcome": ["a", None]}, "row 2, column outcome: The label is missing"),
        ({"x": [1, 2], "outcome": ["a", "b"], "weight": [1.0, 0.0]}, "row 2, column weight: The weight is not valid"),
    ):
        parquet(tmp_path / "own.parquet", columns)
        weight = "weight" if "weight" in columns else None
        with pytest.raises(DataError, match=told):
            DATASETS["table"](tmp_path, file="own.parquet", label="outcome", weight=weight)


def test_too_many_categories_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_rows, "MAX_CATEGORIES", 2)
    with pytest.raises(DataError, match="column id: The column has too many categories"):
        read(tmp_path, "id,outcome\na,1\nb,2\nc,1\n", drop=[])


def test_a_table_in_a_file_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"categorical": ["zip"]}
    train, wanted = np.array([0, 2]), read(tmp_path, **settings)
    monkeypatch.setattr(scratch, "LARGE", 0)
    found = read(tmp_path, **settings)
    assert scratch.in_file(found.array)
    for change in (lambda data: data, lambda data: data.learned_from(train), lambda data: data.select(train)):
        before, after = change(wanted), change(found)
        assert scratch.in_file(after.array)
        assert after.columns == before.columns
        np.testing.assert_array_equal(after.array, before.array)


def test_columns_that_teach_nothing_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    lines = ["customer,name,empty,none,same,kind,gap,amount,label"]
    for row in range(60):
        gap, kind = "" if row == 7 else "1", "ab"[row % 2]
        lines.append(f"{1000 + row},n{row},,?,3,{kind},{gap},{rng.normal()},{row % 2}")
    read(tmp_path, "\n".join(lines), label="label", drop=[])
    assert [record.getMessage() for record in caplog.records] == [
        "`customer` has another value in each row, like an identifier. Drop it if it is one.",
        "`name` has another value in each row, like an identifier. Drop it if it is one.",
        "`empty` is empty.",
        "`none` is empty.",
        "`same` is constant.",
    ]
    caplog.clear()
    read(tmp_path, "\n".join(lines), label="label", drop=["customer", "name", "empty", "none", "same"])
    assert not caplog.records


def test_numbers_that_become_categories_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = ["income,price,zone,label"]
    for row in range(60):
        income = "unsure" if row == 41 else str(1000 + row)
        lines.append(f'{income},"{row},50",{"NSEW"[row % 4]},{row % 2}')
    read(tmp_path, "\n".join(lines), label="label", drop=[])
    assert [record.getMessage() for record in caplog.records] == [
        "`income` has 59 numbers and other texts, such as 'unsure', so they are categories. Correct or empty those "
        "cells.",
        "`price` has numbers with decimal commas, which are read as categories. Write them with points.",
    ]
