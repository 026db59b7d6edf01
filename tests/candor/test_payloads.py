"""Bodies of requests: what is sent of arrays, data frames and names."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from candor.payloads import images_body, inputs_body, json_body, prediction_body


def sent(body: dict[str, Any]) -> Any:
    assert body["headers"]["content-type"] == "application/json"
    return json.loads(body["content"])


def test_a_data_frame_is_sent_row_by_row_with_its_missing_values() -> None:
    frame = pd.DataFrame(
        {
            "amount": [1.5, math.nan],
            "items": pd.array([3, None], "Int64"),
            "shop": pd.Categorical(["a", None]),
            "new": pd.array([True, None], "boolean"),
        },
        index=[7, 9],
    )
    rows = [
        {"amount": 1.5, "items": 3, "shop": "a", "new": True},
        {"amount": None, "items": None, "shop": None, "new": None},
    ]
    assert sent(inputs_body(frame, {"references": ["x", "y"]})) == {"inputs": rows, "references": ["x", "y"]}
    assert sent(prediction_body(None, {"scores": frame[["amount"]][:1]}, {})) == {"scores": [{"amount": 1.5}]}


def test_a_frame_with_to_dicts_is_sent_row_by_row() -> None:
    class Polars:
        columns = ("a",)

        def to_dicts(self) -> list[dict[str, Any]]:
            return [{"a": 1}, {"a": None}]

    assert sent(inputs_body(Polars(), {})) == {"inputs": [{"a": 1}, {"a": None}]}


def test_arrays_are_sent_as_they_are_and_objects_as_json() -> None:
    array = np.array([[1.0, np.nan]], np.float32)
    np.testing.assert_array_equal(np.load(io.BytesIO(inputs_body(array, {"groups": None})["content"])), array)
    assert sent(inputs_body(array, {"groups": ["g"]})) == {"inputs": [[1.0, None]], "groups": ["g"]}
    assert sent(inputs_body(np.array([[1.5, "a", None]], object), {})) == {"inputs": [[1.5, "a", None]]}
    nested = [{"a": np.float64("nan"), "b": np.array([1.0, np.nan])}]
    assert sent(inputs_body(nested, {})) == {"inputs": [{"a": None, "b": [1.0, None]}]}


def test_only_inputs_may_lack_numbers() -> None:
    assert sent(json_body({"at": datetime(2026, 1, 2, tzinfo=UTC), "n": np.int64(3)})) == {
        "at": "2026-01-02T00:00:00+00:00",
        "n": 3,
    }
    for value in (math.nan, math.inf):
        with pytest.raises(TypeError, match="NaN or infinity"):
            json_body({"limits": {"flipped": value}})
    with pytest.raises(TypeError, match="NaN or infinity"):
        inputs_body([{"amount": math.inf}], {})
    with pytest.raises(TypeError, match="found Decimal"):
        inputs_body([{"amount": Decimal(1)}], {})


@pytest.mark.parametrize("single", ["abc", b"abc", {"a": 1}])
def test_a_single_value_is_no_batch(single: Any) -> None:
    with pytest.raises(TypeError, match=f"single {type(single).__name__} as inputs"):
        inputs_body(single, {})
    for body in (lambda names: inputs_body(["a"], names), lambda names: images_body([b"png"], names)):
        with pytest.raises(TypeError, match=f"single {type(single).__name__} as references"):
            body({"references": single})


def test_no_images_are_refused() -> None:
    with pytest.raises(ValueError, match="no image"):
        images_body([], {})
