"""A process that imports what scores, once; those that score are copies of it, so they start at once."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from typing import Final

_MODULE: Final = "service.bulk.worker"
_THREADS: Final = "OMP_NUM_THREADS"


def begin() -> ForkServerContext:
    """Let the process import while the caller goes on; return the context whose processes are its copies.

    They are not copies of the caller, which has threads and locks. Numerical libraries have one thread in them.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_MODULE])
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before
    return context
