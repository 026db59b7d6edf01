"""Give freed memory back to the system."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1  # mallopt(3)
_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 4 << 20  # bytes; nothing of this size is made for a prediction of usual size


def give_back_large_blocks() -> None:
    """Map each large block by itself, so that the system gets it back as soon as it is freed.

    By default, glibc raises the size from which it does so to the largest block that it has seen freed. It then keeps
    what hostile or merely large bodies needed in the heap of every thread that read one.
    """
    with contextlib.suppress(AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGE)  # glibc's own rule, which setting the other one switches off
