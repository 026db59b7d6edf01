"""Threads for passes over large matrices, in which NumPy gives Python's lock back for each call."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

_MOST = 4
# Fewer entries are read before a second thread has started.
_LARGE = 4_194_304


def by_rows(rows: int, classes: int, work: Callable[[range], None]) -> None:
    """Do work on consecutive ranges of the rows of a matrix, in several threads if it is large.

    There are as many threads as processors, four at most; OMP_NUM_THREADS limits them as it limits numerical libraries.

    Raises:
        Exception: What `work` raised for the first range that failed.
    """
    threads = _threads() if rows * classes >= _LARGE else 1
    if threads == 1:
        work(range(rows))
        return
    edges = [rows * number // threads for number in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, range(*edge)) for edge in pairwise(edges)]:
            done.result()


def _threads() -> int:
    limit = os.environ.get("OMP_NUM_THREADS", "")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST, usable, int(limit) if limit.isdecimal() else _MOST))
