"""Buffers on the device of a model, one set per batch size, bound to its session once.

A run fills the input of a set, and the logits stay on the device until they are read. Sizes are few: for every new
shape a GPU chooses algorithms and allocates memory, which should happen before the first request.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.inference.pinned import pinned_array


def bucket_sizes(largest: int) -> tuple[int, ...]:
    """Return the batch sizes that runs are padded to: the powers of two below the largest, and the largest."""
    return (*(2**i for i in range((largest - 1).bit_length())), largest)


class Stage:
    """Buffers of one batch size.

    Args:
        session: The model's session, with input `input` and output `logits`.
        device: Where its provider computes, "cpu" or "cuda".
        shape: Shape of the input, batch size first.
        dtype: Type of the input.
        classes: Columns of the logits.

    Attributes:
        size: Rows per run.
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

    def run(self, options: ort.RunOptions, inputs: npt.NDArray[Any]) -> None:
        """Compute the logits of up to `size` inputs. Further rows keep values of an earlier run."""
        # A CUDA graph has the addresses of these buffers and the shape of this batch in it: one for each size. Without
        # `enable_cuda_graph`, and on a CPU, every run is ordinary.
        options.add_run_config_entry("gpu_graph_id", str(self.size))
        self._host[: len(inputs)] = inputs
        self._input.update_inplace(self._host)
        # Neither call returns before the device is done, so there is no stream to wait for.
        self._session.run_with_iobinding(self._binding, options)


def rows_of(buffer: ort.OrtValue, rows: int) -> npt.NDArray[np.float32]:
    """Copy the first rows of a buffer on the device to a new array."""
    # On a CPU, the buffer returns its own memory, which the next run overwrites.
    return np.array(buffer.numpy()[:rows], np.float32)
