"""Host memory that a GPU can read from directly."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.errors import ConfigurationError


def pinned_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A zeroed array in memory that the kernel never moves, so that copies to the GPU need no stop in between.

    Args:
        shape: Of the array.
        dtype: Of the array.

    Raises:
        ConfigurationError: CUDA gives no such memory.
    """
    runtime = ctypes.CDLL(f"libcudart.so.{str(ort.cuda_version).split('.')[0]}")
    runtime.cudaHostAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint]
    runtime.cudaFreeHost.argtypes = [ctypes.c_void_p]
    size = math.prod(shape) * np.dtype(dtype).itemsize
    address = ctypes.c_void_p()
    code = runtime.cudaHostAlloc(ctypes.byref(address), max(1, size), 0)
    if code != 0 or address.value is None:
        raise ConfigurationError(
            f"CUDA gave no {size} bytes of pinned memory.",
            where="CANDOR_MAX_BATCH_SIZE",
            found=f"CUDA error {code}",
            remedy="Lower CANDOR_MAX_BATCH_SIZE, or raise the limit of locked memory (ulimit -l).",
        )
    memory = (ctypes.c_char * size).from_address(address.value)
    # The array holds `memory`, so this is called once no view of it is left; not at exit, when CUDA may be gone before.
    weakref.finalize(memory, runtime.cudaFreeHost, address).atexit = False
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=memoryview(memory))
    array[...] = 0
    return array
