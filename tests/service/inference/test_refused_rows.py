"""Which row a failed run is blamed on, and when none is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

from service.errors import InputValueError
from service.inference.refused_rows import run_rows

GOOD = np.zeros((1, 2), np.float32)


def runs(refused: float, *, largest: int = 1000) -> Any:
    """A graph that fails on a value, or on a batch that is too large for its memory."""

    def run(inputs: np.ndarray) -> np.ndarray:
        if (inputs == refused).any() or len(inputs) > largest:
            raise RuntimeException("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Status Message: much")
        return inputs

    return run


@pytest.mark.parametrize("row", [0, 3, 6])
def test_the_row_that_fails_is_named(row: int) -> None:
    inputs = np.zeros((7, 2), np.float32)
    inputs[row] = 9
    with pytest.raises(InputValueError) as caught:
        run_rows(runs(9), inputs, GOOD)
    assert (caught.value.where, caught.value.found) == (f"/inputs/{row}", "much")


@pytest.mark.parametrize("rows", [1, 5])
def test_no_row_is_named_where_one_that_ran_before_fails_too(rows: int) -> None:
    with pytest.raises(RuntimeException):
        run_rows(runs(0), np.zeros((rows, 2), np.float32), GOOD)


def test_no_row_is_named_where_only_the_whole_batch_fails() -> None:
    with pytest.raises(RuntimeException):
        run_rows(runs(9, largest=4), np.zeros((5, 2), np.float32), GOOD)
