"""Rows of a table become arrays, and the columns travel with their model."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import bundle
from bundle import Column, Columns, InputSpec, RowError, TensorSpec
from importing.rows import values
from training.data import table

COLUMNS = Columns((Column("age"), Column("fault", ("driver", "third party")), Column("value")))
WEIGHTS = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)


@pytest.fixture
def table_contents(contents: bundle.BundleContents) -> bundle.BundleContents:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["input", "weights"], ["logits"])],
        "table",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
    inputs = COLUMNS.encode([{"age": 41, "fault": "driver", "value": 1.5}, {"age": 3, "value": -1}])
    return replace(
        contents,
        input=bundle.InputSpec(kind="array", dtype="float32", shape=(3,)),
        model_bytes=bytes(model.SerializeToString()),
        golden=bundle.Golden(inputs, inputs @ WEIGHTS),
        columns=COLUMNS,
    )


def test_numbers_categories_and_what_is_missing() -> None:
    encoded = COLUMNS.encode(
        [
            {"age": " 41 ", "fault": "third party", "value": -2.5, "other": "ignored"},
            {"age": "NA", "fault": " driver ", "value": None},
            {"fault": "nobody", "value": "?"},
            {"age": float("nan"), "fault": "", "value": "1e3"},
        ]
    )
    assert encoded.dtype == np.float32
    np.testing.assert_array_equal(
        encoded, np.array([[41, 2, -2.5], [np.nan, 1, np.nan], [np.nan, 0, np.nan], [np.nan, 0, 1000]], np.float32)
    )


def test_a_known_category_is_not_missing_whatever_it_is_called() -> None:
    column = bundle.Column("country", ("AT", "NA", "?"), on_missing="refuse")
    absent: Counter[tuple[str, str]] = Counter()
    assert column.encode(["NA", " ? ", "AT", "DE"], absent) == [2, 3, 1, 0]
    assert absent == {("country", "unknown"): 1}
    for missing in ("na", "nan", "", None):
        with pytest.raises(bundle.RowError, match="requires a value"):
            column.encode([missing])


@pytest.mark.parametrize("value", ["old", "inf", "-inf", "1e39", 1e300, [1]])
def test_no_number_is_refused(value: Any) -> None:
    with pytest.raises(bundle.RowError, match="'age'"):
        COLUMNS.encode([{"age": value}])


def test_the_bundle_keeps_the_columns(tmp_path: Path, table_contents: bundle.BundleContents) -> None:
    read = bundle.verify(bundle.write(tmp_path, table_contents))
    assert read.columns == COLUMNS
    assert read.vocabulary is None


def test_columns_of_another_model_are_refused(
    tmp_path: Path, contents: bundle.BundleContents, table_contents: bundle.BundleContents
) -> None:
    for whole, columns in ((contents, COLUMNS), (table_contents, Columns((Column("age"),)))):
        with pytest.raises(bundle.BundleFormatError):
            bundle.write(tmp_path / "root", replace(whole, columns=columns))
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    "columns",
    [
        [],
        [{"name": "a", "categories": None}, {"name": "a", "categories": None}],
        [{"name": "a", "categories": ["x", "x"]}],
        [{"name": "a", "categories": "xy"}],
        [{"name": "a", "categories": [1]}],
        [{"name": 1, "categories": None}],
        [{"name": "a"}],
        [{"name": "a", "categories": None, "unit": "km"}],
        ["a"],
        None,
    ],
)
def test_other_documents_are_no_columns(columns: object) -> None:
    with pytest.raises(bundle.BundleFormatError) as caught:
        Columns.load(json.dumps({"schema_version": 1, "columns": columns}).encode())
    assert caught.value.file == "columns.json"


def test_columns_of_schema_version_1_still_open() -> None:
    first = b"""{"schema_version": 1, "columns": [
 {"name": "age", "categories": null},
 {"name": "fault", "categories": ["driver", "third party"]},
 {"name": "value", "categories": null}
]}"""
    opened = Columns.load(first)
    assert opened == COLUMNS
    rows = [{"age": 41, "fault": "third party", "value": None}, {"age": "?", "fault": "nobody", "value": 2}]
    np.testing.assert_array_equal(opened.encode(rows), np.float32([[41, 2, np.nan], [np.nan, 0, 2]]))
    assert Columns.load(opened.dump()) == opened


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"schema_version": 2, "columns": []}'])
def test_other_bytes_are_no_columns(data: bytes) -> None:
    with pytest.raises(bundle.BundleFormatError):
        Columns.load(data)


@pytest.mark.parametrize("kind", ["category", "text"])
def test_accepted_values_that_are_missing_or_unknown_are_counted(kind: Any) -> None:
    columns = Columns((Column("age"), Column("fault", ("driver", "other"), kind)))
    rows = [
        {"age": None, "fault": "driver"},
        {"age": 3.0, "fault": "nobody"},
        {"age": math.nan, "fault": None},
        {"fault": " other "},
        {"age": "4", "fault": "somebody"},
    ]
    spec = InputSpec(
        kind="tensors",
        dtype="record",
        tensors=(TensorSpec(name="a", dtype="float32"), TensorSpec(name="f", dtype="string")),
    )
    absent: Counter[tuple[str, str]] = Counter()
    if kind == "text":
        Columns(tuple(replace(c, tensor=t) for c, t in zip(columns.columns, "af", strict=True))).encode(
            rows, spec, absent
        )
    else:
        columns.encode(rows, absent=absent)
    assert absent == {("age", "missing"): 3, ("fault", "missing"): 1, ("fault", "unknown"): 2}


@given(
    st.lists(st.sampled_from(["1", " 2.5 ", "-3e5", "true", "", "NaN", "?", "red", None, 4, 0.1, True]), max_size=60),
    st.sampled_from([Column("x"), Column("x", ("red", "1")), Column("x", kind="text", fill="none")]),
    st.sampled_from(["accept", "refuse"]),
)
def test_many_cells_are_encoded_as_each_alone(cells: list[Any], column: Column, rule: Any) -> None:
    """Array operations take many cells at once, or leave them to the code that takes each."""
    column = replace(column, on_missing=rule)
    each: list[Any] = []
    counts: Counter[tuple[str, str]] = Counter()
    try:
        for cell in cells:
            each += column.encode([cell], counts)
    except RowError as error:
        with pytest.raises(RowError, match=re.escape(error.message)):
            column.encode(cells)
        return
    together: Counter[tuple[str, str]] = Counter()
    np.testing.assert_array_equal(np.array(column.encode(cells, together)), np.array(each))
    assert together == counts


@given(st.lists(st.floats(width=32), max_size=40), st.sampled_from(["accept", "refuse"]))
def test_an_array_of_numbers_is_encoded_as_its_cells(values: list[float], rule: Any) -> None:
    column, array = replace(Column("x"), on_missing=rule), np.array(values, np.float32)
    counts: Counter[tuple[str, str]] = Counter()
    together: Counter[tuple[str, str]] = Counter()
    try:
        wanted = column.encode(array.tolist(), counts)
    except RowError as error:
        with pytest.raises(RowError, match=re.escape(error.message)):
            column.encode(array)
        return
    np.testing.assert_array_equal(np.array(column.encode(array, together)), np.array(wanted))
    assert together == counts


@pytest.mark.parametrize("value", [0.1, 3, True, -2.5, 1e-46, 3.4e38, math.nan, None, "4", "?", "absent"])
def test_rows_of_numbers_alone_are_encoded_as_columns_are(value: Any) -> None:
    columns = Columns((Column("a"), Column("b")))
    rows = [{"a": 1.5, "b": value}, {"a": 2, "b": 0.3}]
    if value == "absent":
        del rows[0]["b"]
    by_column = {"a": [1.5, 2], "b": [rows[0].get("b"), 0.3]}
    counts: tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]] = Counter(), Counter()
    encoded = columns.encode(rows, absent=counts[0])
    expected = columns.encode_columns(by_column, 2, absent=counts[1])
    assert encoded.dtype == expected.dtype
    np.testing.assert_array_equal(encoded, expected)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("text", ["1_000", "\u0967\u0968", "\uff11\uff12", "-nan", "1e400"])
@pytest.mark.parametrize("others", [0, 20])
def test_training_import_and_service_agree_on_what_spells_a_number(text: str, others: int, tmp_path: Path) -> None:
    cells = ["5"] * others + [text]
    with pytest.raises(RowError, match="not a number"):
        Column("age", on_missing="refuse").encode(cells)
    assert values.numbers(cells, spelled=True) is None
    if text not in ("-nan", "1e400"):  # a column of such is one of numbers, in which they are refused
        (tmp_path / "people.csv").write_text("age,label\n" + "".join(f"{age},{age == '5'}\n" for age in ["5", *cells]))
        data = table.load(tmp_path, file="people.csv", label="label")
        assert data.columns is not None
        assert data.columns.columns[0].kind == "category"
    assert Column("age").encode([*cells[:-1], " 1e3 "])[-1] == 1000


def test_a_literal_column_lacks_only_empty_texts() -> None:
    column = Column("country", kind="text", fill="none", literal=True)
    assert column.encode(["NA", " ? ", "", None, float("nan")]) == ["NA", " ? ", "none", "none", "none"]
    columns = Columns((column, Column("age")))
    assert Columns.load(columns.dump()) == columns
    assert columns.dump().count(b"literal") == 1, "files of columns without it stay as they were"
    for wrong in (1, "true", None):
        with pytest.raises(bundle.BundleFormatError):
            Columns.load(columns.dump().replace(b"true", json.dumps(wrong).encode()))


def test_a_whole_number_has_no_code_for_what_is_unknown() -> None:
    """As a bundle of an earlier import has it: unknown values are accepted, and the graph has nothing for them."""
    tensor = TensorSpec(name="codes", dtype="int64", shape=(1,))
    column = Column("country", ("AT", "DE"), tensor="codes", first_code=0, absent=math.nan)
    spec = InputSpec(kind="tensors", dtype="record", tensors=(tensor,))
    for value in ("FR", None):
        with pytest.raises(RowError, match="column 'country' requires a value that the model knows"):
            Columns((column,)).encode([{"country": "DE"}, {"country": value}], spec)


def test_true_and_false_are_known_in_any_letters() -> None:
    columns = Columns(
        (Column("csv", ("false", "true")), Column("sheet", ("FALSE", "TRUE")), Column("both", ("True", "true")))
    )
    for cell in (True, "true", "True", " TRUE "):
        assert columns.encode([dict.fromkeys(("csv", "sheet"), cell)])[0, :2].tolist() == [2, 2]
    assert columns.encode([{"both": "true"}, {"both": True}])[:, 2].tolist() == [2, 1]
