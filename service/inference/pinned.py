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
    """Return a zeroed array in pinned memory, which is copied to the GPU without a detour.

    Args:
        shape: Shape of the array.
        dtype: Type of the array.

    Raises:
        ConfigurationError: CUDA cannot allocate the memory.
    """
    runtime = ctypes.CDLL(f"libcudart.so.{str(ort.cuda_version).split('.')[0]}")
    runtime.cudaHostAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_uint]
    runtime.cudaFreeHost.argtypes = [ctypes.c_void_p]
    size = math.prod(shape) * np.dtype(dtype).itemsize
    address = ctypes.c_void_p()
    code = runtime.cudaHostAlloc(ctypes.byref(address), max(1, size), 0)
    if code != 0 or address.value is None:
        raise ConfigurationError(
            f"CUDA could not allocate {size} bytes of pinned memory.",
            where="CANDOR_MAX_BATCH_SIZE",
            found=f"CUDA error {code}",
            remedy="Lower CANDOR_MAX_BATCH_SIZE, or raise the limit of locked memory (ulimit -l).",
        )
    memory = (ctypes.c_char * size).from_address(address.value)
    # The array references `memory`, so this runs when no view is left; not at exit, when CUDA may be gone already.
    weakref.finalize(memory, runtime.cudaFreeHost, address).atexit = False
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=memoryview(memory))
    array[...] = 0
    return array
