"""Find the input that a graph refuses when it runs, such as a code outside the table of a Gather."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from service.errors import InputValueError
from service.places import in_body

_LONGEST: Final = 200
_REFUSALS: Final = (Fail, InvalidArgument, RuntimeException)
_SOURCE = re.compile(r".*\.(?:cc|cpp|cu|cuh|h):\d+ ")  # a place in the source of ONNX Runtime
_CONDITION = re.compile(r".*? was false\. ?")  # the function and the condition that it checks

_Run = Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]


def run_rows(run: _Run, inputs: npt.NDArray[Any], accepted: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return what `run` gives for a batch (N, …).

    Args:
        run: Runs the graph.
        inputs: The batch.
        accepted: A batch of one row that the graph ran before. If it fails too, no row is to blame.

    Raises:
        InputValueError: The graph refuses a row; it names the first.
        Exception: Any other error of `run`, or one of the whole batch although each of its parts runs.
    """
    try:
        return run(inputs)
    except _REFUSALS as error:
        if not len(inputs) or _fails(run, accepted) or (found := _first(run, inputs, error)) is None:
            raise
        row, refusal = found
    raise InputValueError(
        "The model cannot compute an input.",
        where=in_body("inputs", row),
        found=_reason(str(refusal)),
        expected="values that every step of the model accepts",
        remedy="Correct this input, or send the other inputs without it.",
    )


def _fails(run: _Run, inputs: npt.NDArray[Any]) -> bool:
    try:
        run(inputs)
    except _REFUSALS:
        return True
    return False


def _first(run: _Run, inputs: npt.NDArray[Any], error: Exception) -> tuple[int, Exception] | None:
    """Return the first row of a failed batch that fails and its error; None if the batch fails only as a whole."""
    if len(inputs) == 1:
        return 0, error
    half = len(inputs) // 2
    for start, part in ((0, inputs[:half]), (half, inputs[half:])):
        try:
            run(part)
        except _REFUSALS as refusal:
            found = _first(run, part, refusal)
            return None if found is None else (start + found[0], found[1])
    return None


def _reason(message: str) -> str:
    """Return the reason without names of nodes, files and functions.

    >>> _reason("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while running Gather node. "
    ...     "Name:'/g' Status Message: /src/gather.cc:9 int F(x) a < b was false. idx=9 must be within [-4,3]")
    'idx=9 must be within [-4,3]'
    """
    reason = message.rsplit("Status Message: ", 1)[-1].strip().partition("\n")[0]
    return _CONDITION.sub("", _SOURCE.sub("", reason))[:_LONGEST]
