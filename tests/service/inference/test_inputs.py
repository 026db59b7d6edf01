"""Arrays fit the model's input exactly, or are refused with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bundle import Column, Columns, InputSpec
from service.errors import InputError, InputShapeError, InputTypeError, InputValueError
from service.inference.encoded import absent_in
from service.inference.inputs import conform

IMAGE = InputSpec(kind="image", dtype="uint8", shape=(3, 2, 1))
COLOUR = InputSpec(kind="image", dtype="uint8", shape=(3, 2, 3))
ROWS = InputSpec(kind="array", dtype="float32", shape=(4,))
TOKENS = InputSpec(kind="tokens", dtype="int32", shape=(5,))
SPECS = st.sampled_from([IMAGE, COLOUR, ROWS, TOKENS])
DTYPES = npst.scalar_dtypes() | npst.unicode_string_dtypes() | st.just(np.dtype(object))


def shapes_near(spec: InputSpec) -> st.SearchStrategy[tuple[int, ...]]:
    exact = st.sampled_from([spec.shape, spec.shape[:-1], (2, *spec.shape), (3, *spec.shape[:-1]), (0, *spec.shape)])
    return exact | npst.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4)


@given(data=st.data(), spec=SPECS)
def test_it_gives_the_same_numbers_in_the_models_form_or_an_input_error(data: Any, spec: InputSpec) -> None:
    array = data.draw(npst.arrays(data.draw(DTYPES), data.draw(shapes_near(spec))))
    try:
        fitted = conform(array, spec)
    except InputError:
        return
    assert fitted.dtype == spec.dtype
    assert fitted.shape[1:] == spec.shape
    assert fitted.flags.c_contiguous
    assert len(fitted) >= 1
    assert fitted.size == array.size
    flat = array.reshape(-1)
    if spec.dtype == "float32":
        assert np.isfinite(fitted).all()
        np.testing.assert_array_equal(fitted.reshape(-1), flat.astype(np.float32))
    else:
        assert [int(value) for value in fitted.reshape(-1)] == [int(value) for value in flat]


@pytest.mark.parametrize(
    ("array", "spec", "kind", "where", "found"),
    [
        (np.zeros((2, 3, 2, 1), np.float32), IMAGE, InputTypeError, "/inputs", "float32"),
        (np.zeros((2, 3, 2, 1), bool), IMAGE, InputTypeError, "/inputs", "bool"),
        (np.zeros((2, 3, 2, 1), object), IMAGE, InputTypeError, "/inputs", "values that are not numbers"),
        (
            np.int16([[[[0], [0]]] * 3, [[[0], [256]]] * 3]).reshape(2, 3, 2, 1),
            IMAGE,
            InputValueError,
            "/inputs/1",
            256,
        ),
        (np.float64([[0, 1, 2, 3], [0, 1, np.nan, 3]]), ROWS, InputValueError, "/inputs/1", "nan"),
        (np.float64([[0, 1, 2, -np.inf]]), ROWS, InputValueError, "/inputs/0", "-inf"),
        (np.float64([[0, 1, 2, 1e300]]), ROWS, InputValueError, "/inputs/0", "inf"),
        (np.float32([0, 1, 2, np.nan]), ROWS, InputValueError, "/inputs/0", "nan"),
        (np.int64([[0, 1, 2, 3, 2**31]]), TOKENS, InputValueError, "/inputs/0", 2**31),
        (np.zeros((0, 4), np.float32), ROWS, InputShapeError, "/inputs", 0),
        (np.zeros((2, 5), np.float32), ROWS, InputShapeError, "/inputs/0", [5]),
        (np.float32(1), ROWS, InputShapeError, "/inputs/0", []),
    ],
)
def test_what_is_wrong_is_said(
    array: np.ndarray, spec: InputSpec, kind: type[InputError], where: str, found: Any
) -> None:
    with pytest.raises(kind) as caught:
        conform(array, spec)
    assert (caught.value.where, caught.value.found) == (where, found)


def test_nan_is_what_is_missing_from_a_tables_row_and_infinity_is_refused_there_too() -> None:
    columns = Columns(tuple(Column(name) for name in "abcd"))
    for dtype in (np.float32, np.float64):
        rows = np.array([[0, 1, np.nan, 3], [np.nan] * 4], dtype)
        np.testing.assert_array_equal(conform(rows, ROWS, columns), rows)
        rows[1, 2] = np.inf
        with pytest.raises(InputValueError) as caught:
            conform(rows, ROWS, columns)
        assert (caught.value.where, caught.value.found) == ("/inputs/1", "inf")
    with pytest.raises(InputValueError, match="finite"):
        conform(np.float64([[0, 1, 2, 1e300]]), ROWS, columns)


@pytest.mark.parametrize("rows", [1, 2000], ids=["few", "many"])
def test_numbers_whose_squares_overflow_are_accepted_and_each_one_that_is_not_finite_is_found(rows: int) -> None:
    columns = Columns(tuple(Column(name, on_missing="refuse") for name in "abcd"))
    for dtype in (np.float32, np.float64):
        spec = ROWS.model_copy(update={"dtype": np.dtype(dtype).name})
        largest = np.full((rows, 4), np.finfo(dtype).max, dtype)
        for encoder in (None, columns):
            np.testing.assert_array_equal(conform(largest, spec, encoder), largest)
            for wrong in (np.nan, np.inf, -np.inf):
                faulty = largest.copy()
                faulty[-1, 2] = wrong
                with pytest.raises(InputValueError) as caught:
                    conform(faulty, spec, encoder)
                assert str(caught.value.where) == f"/inputs/{rows - 1}"


def test_what_already_fits_is_not_copied() -> None:
    array = np.zeros((2, 3, 2, 1), np.uint8)
    assert np.shares_memory(conform(array, IMAGE), array)


def test_a_column_that_requires_a_value_refuses_nan_and_the_code_of_an_absent_category() -> None:
    columns = Columns(
        (
            Column("free"),
            Column("age", on_missing="refuse"),
            Column("fault", ("driver",), on_missing="refuse", on_unknown="refuse"),
            Column("lenient", ("a",), on_missing="refuse"),
        )
    )
    spec = InputSpec(kind="array", dtype="float32", shape=(4,))
    good = [np.nan, 3, 1, 0]
    np.testing.assert_array_equal(conform(np.array([good], np.float32), spec, columns), [good])
    for row, name in (([1, np.nan, 1, 1], "age"), ([1, 3, 0, 1], "fault")):
        with pytest.raises(InputValueError, match=f"Column '{name}' requires a value") as refused:
            conform(np.array([good, row], np.float32), spec, columns)
        assert str(refused.value.where) == "/inputs/1"


def test_nan_in_a_column_of_categories_is_the_absent_code_or_refused() -> None:
    columns = Columns(
        (
            Column("free", ("a",)),
            Column("coded", ("a",), on_unknown="refuse"),
            Column("lenient", ("a",), on_missing="refuse"),
            Column("trees", ("a",), first_code=0, absent=np.nan, on_missing="refuse"),  # NaN is an unknown category's
        )
    )
    sent = np.float32([[np.nan, np.nan, 0, np.nan], [1, 1, 1, 0]])
    np.testing.assert_array_equal(conform(sent, ROWS, columns), [[0, 0, 0, np.nan], [1, 1, 1, 0]])
    by_name = columns.encode(
        [{"lenient": "other", "trees": "other"}, dict.fromkeys(("free", "coded", "lenient"), "a") | {"trees": "a"}]
    )
    np.testing.assert_array_equal(conform(sent, ROWS, columns), by_name)
    assert absent_in(sent, columns)["free", "missing"] == 1
    sent[1, 2] = np.nan
    with pytest.raises(InputValueError, match="Column 'lenient' requires a value") as refused:
        conform(sent, ROWS, columns)
    assert (refused.value.where, refused.value.found) == ("/inputs/1", "NaN")
