"""CSV tables, and the preset for vehicle claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training import ConfigurationError, DataError
from training.data import DATASETS, Dataset

TEXT = """id,age,colour,zip,outcome
1,40,red,1010,yes
2,,blue,1020,no
3,35.5,NA,1010,no

4,20," red ",1030,yes
"""


def read(tmp_path: Path, text: str = TEXT, **settings: Any) -> Dataset:
    (tmp_path / "own.csv").write_text(text, encoding="utf-8")
    return DATASETS["table"](tmp_path, **({"file": "own.csv", "label": "outcome", "drop": ["id"]} | settings))


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
        ("", "is empty"),
        ("age;outcome\n1;a\n2;b\n", "only one column, .*separated by commas"),
        ("age,outcome\n", "no rows"),
        ("age,age,outcome\n1,2,a\n", "'age' twice"),
        ("age,outcome\n1,a\n2\n", "row 3: 1 cells, not 2"),
        ("age,outcome\n1,a\n2,b,c\n", "row 3: 3 cells, not 2"),
        ("age,outcome\n1,a\n2,\n", "row 3: the label is missing"),
        ("age,outcome\n1,a\n2,a\n", "expected two or more"),
        ('age,outcome\n1,"a\n', "not a valid table"),
        ("age,outcome\n1e99,a\n2,b\n", "'age' is not a number"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        read(tmp_path, text, drop=[])


def test_other_bytes_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("age,outcome\n1,grün\n2,b\n".encode("latin-1"))
    for file, told in (("latin.csv", "not a valid table"), ("none.csv", "none.csv is missing")):
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
