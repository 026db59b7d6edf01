"""Threads of training, as many as this process may use."""

from __future__ import annotations

import os

from bundle.processors import whole_cpus
from training.recipe import require


def usable_threads(asked: int | None) -> int:
    """Return the threads of a run: those that were asked for, or all that this process may use.

    Raises:
        ConfigurationError: More threads than CPUs.
    """
    if asked is None:
        return available_threads()
    cpus = os.cpu_count() or 1
    require("threads", asked, asked <= cpus, f"at most {cpus}, the CPUs of this machine")
    return asked


def available_threads() -> int:
    """Return the processors of affinity and control group, at most OMP_NUM_THREADS where it is set."""
    granted = whole_cpus()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(granted, int(asked)) if asked.isdecimal() and int(asked) > 0 else granted
