"""How much memory a call takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def most_traced(call: Callable[[], object]) -> int:
    """Return the most bytes that Python and NumPy held for `call`: the least of two runs.

    tracemalloc counts every thread of the process, and a first run also imports modules.
    """
    peaks = []
    for _ in range(2):
        tracemalloc.start()
        try:
            call()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)
