"""Threads per inference run."""

from __future__ import annotations

import math
from pathlib import Path

from bundle.processors import available_cpus

_ROOT = Path("/")


def inference_threads(wanted: int | None, *, root: Path = _ROOT, affinity: int | None = None) -> int:
    """Return the threads per inference run.

    Args:
        wanted: Setting of the operator. None takes all CPUs but one, which reads requests and writes answers.
        root: Root of the kernel's files.
        affinity: CPUs that the process may run on; None asks the kernel.
    """
    if wanted is not None:
        return wanted
    return max(1, math.floor(available_cpus(root=root, affinity=affinity)) - 1)
