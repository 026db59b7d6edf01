"""Deterministic PyTorch results, which depend on the seed alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from training.threads import usable_threads


@contextmanager
def deterministic(seed: int, threads: int | None) -> Iterator[None]:
    """Seed PyTorch, select deterministic kernels and the number of threads; restore all of it afterwards.

    Raises:
        ConfigurationError: More threads than CPUs.
    """
    threads = usable_threads(threads)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with a workspace of its own
    threads_before = torch.get_num_threads()
    strict_before = torch.are_deterministic_algorithms_enabled()
    warned_before = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict_before, warn_only=warned_before)
            torch.set_num_threads(threads_before)
