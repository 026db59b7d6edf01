"""Buffers on a model's device, one set for each batch size, bound to its session once and for all.

A run fills a set's input, and the logits stay where they were computed until somebody wants them. Sizes are few: a GPU
picks algorithms and takes memory anew for every shape that it sees for the first time, and that belongs before the
first request and not into one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.inference.pinned import pinned_array


def bucket_sizes(largest: int) -> tuple[int, ...]:
    """Batch sizes that runs are padded to: the powers of two below the largest, and the largest."""
    return (*(2**i for i in range((largest - 1).bit_length())), largest)


class Stage:
    """One batch size's buffers.

    Args:
        session: The model's session, with input `input` and output `logits`.
        device: Where its provider computes, "cpu" or "cuda".
        shape: Of the input, the batch size first.
        dtype: Of the input.
        classes: Columns of the logits.

    Attributes:
        size: Rows that a run takes.
        logits: float32 (size, K) on the device.
    """

    def __init__(
        self, session: ort.InferenceSession, *, device: str, shape: tuple[int, ...], dtype: npt.DTypeLike, classes: int
    ) -> None:
        self.size = shape[0]
        self._session = session
        self._host = np.zeros(shape, dtype) if device == "cpu" else pinned_array(shape, dtype)
        self._input = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.dtype(dtype), device, 0)
        self.logits = ort.OrtValue.ortvalue_from_shape_and_type((self.size, classes), np.float32, device, 0)
        self._binding = session.io_binding()
        self._binding.bind_ortvalue_input("input", self._input)
        self._binding.bind_ortvalue_output("logits", self.logits)

    def run(self, inputs: npt.NDArray[Any]) -> None:
        """Compute the logits of at most `size` inputs; rows beyond them are what an earlier run left there."""
        self._host[: len(inputs)] = inputs
        self._input.update_inplace(self._host)
        # Neither call returns before the device is done: no stream has to be waited for, here or by who comes next.
        self._session.run_with_iobinding(self._binding)


def rows_of(buffer: ort.OrtValue, rows: int) -> npt.NDArray[np.float32]:
    """The first rows of a buffer on the device, in an array of their own."""
    # On a CPU the buffer gives its own memory, which the next run overwrites.
    return np.array(buffer.numpy()[:rows], np.float32)
