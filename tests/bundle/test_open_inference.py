"""Requests and answers of the Open Inference Protocol, as a client writes and reads them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bundle.open_inference import LENGTH_HEADER, OF_DTYPE, dump_request, load_answer

NUMBERS = [name for name in OF_DTYPE if name not in ("string", "bool")]


def answer(*outputs: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"model_name": "m", "model_version": "1", "outputs": outputs} | fields).encode()


@given(st.sampled_from(NUMBERS).flatmap(lambda name: arrays.arrays(name, arrays.array_shapes(max_dims=3))))
def test_bytes_come_back_as_they_were_sent(values: np.ndarray) -> None:
    body, headers = dump_request({"x": values}, "y", binary=True)
    length = int(headers[LENGTH_HEADER])
    tensor = json.loads(body[:length])["inputs"][0] | {"name": "y"}
    head = answer(tensor)
    found, version = load_answer(head + body[length:], str(len(head)), "y")
    assert (version, found.dtype, found.tobytes()) == ("1", values.dtype, values.tobytes())
    assert found.shape == values.shape


def test_outputs_before_the_wanted_one_are_passed_over() -> None:
    head = answer(
        {"name": "a", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
        {"name": "b", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}},
    )
    found, _ = load_answer(head + b"\x01\0\0\0x" + np.array([1, 2], "<f4").tobytes(), str(len(head)), "b")
    assert found.tolist() == [1, 2]


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]], [1.0, 2, 3, 4]])
def test_json_may_be_nested_like_the_shape(data: Any) -> None:
    found, _ = load_answer(answer({"name": "y", "datatype": "FP32", "shape": [2, 2], "data": data}), None, "y")
    np.testing.assert_array_equal(found, np.array([[1, 2], [3, 4]], np.float32))


def test_texts_and_truth_values_as_json() -> None:
    inputs = {"t": np.array(["a", "ü"], object), "b": np.array([True, False])}
    body, headers = dump_request(inputs, "y", binary=False)
    assert [tensor["data"] for tensor in json.loads(body)["inputs"]] == [["a", "ü"], [True, False]]
    assert LENGTH_HEADER not in headers


@pytest.mark.parametrize("values", [np.array([np.nan]), np.array([np.inf]), np.array([1], np.float16)], ids=str)
def test_what_json_cannot_hold_is_refused(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="JSON"):
        dump_request({"x": values}, "y", binary=False)


@given(st.binary(max_size=200), st.one_of(st.none(), st.text("0123456789-+ x", max_size=4)))
def test_any_bytes_are_an_answer_or_a_value_error(body: bytes, length: str | None) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_answer(body, length, "y")


@pytest.mark.parametrize(
    ("tensor", "wanted"),
    [
        ({"shape": None}, "no valid shape"),
        ({"shape": [-1]}, "no valid shape"),
        ({"shape": [True]}, "no valid shape"),
        ({"shape": [1] * 33}, "no valid shape"),
        ({"datatype": "FP99"}, "expected numbers"),
        ({"datatype": ["FP32"]}, "expected numbers"),
        ({"data": [True]}, "no numbers"),
        ({"data": ["1"]}, "no numbers"),
        ({"data": [10**400]}, "no numbers"),
        ({"data": {"a": 1}}, "no numbers"),
        ({"data": None, "parameters": {"binary_data_size": -1}}, "does not fit"),
        ({"data": None, "parameters": {"binary_data_size": 10**9}}, "does not fit"),
        ({"data": None, "parameters": {"binary_data_size": 0}}, "0 bytes for FP32"),
    ],
)
def test_a_tensor_that_is_none_is_refused(tensor: dict[str, Any], wanted: str) -> None:
    body = answer({"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]} | tensor)
    with pytest.raises(ValueError, match=wanted):
        load_answer(body, None, "y")
