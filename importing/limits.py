"""Limits of an import: the size of a model's file, and memory, of which a small file can ask for any amount."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

MAX_BYTES = 2**31
"""Maximum size of a model's file, fetched or local; ONNX allows one byte less."""

SHARE = 0.5
"""Share of the machine's memory that an import may take."""


@contextmanager
def bounded_memory() -> Iterator[int]:
    """Let allocations beyond `SHARE` of the machine's memory fail; yields the limit in bytes."""
    limit = int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounded = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bounded, hard))
    try:
        yield bounded
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
