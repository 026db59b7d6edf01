"""Deterministic PyTorch results, which depend on the seed alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from training.threads import usable_threads


@contextmanager
def deterministic(seed: int, threads: int | None, *, strict: bool = True) -> Iterator[None]:
    """Seed PyTorch, select deterministic kernels and the number of threads; restore all of it afterwards.

    Args:
        seed: Of weights and dropout.
        threads: CPU threads; None for all that are granted.
        strict: Whether to refuse operations that are not deterministic. Otherwise cuDNN also takes its fastest kernels.

    Raises:
        ConfigurationError: More threads than CPUs.
    """
    threads = usable_threads(threads)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with a workspace of its own
    threads_before = torch.get_num_threads()
    strict_before = torch.are_deterministic_algorithms_enabled()
    warned_before = torch.is_deterministic_algorithms_warn_only_enabled()
    fastest_before = torch.backends.cudnn.benchmark
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict)
        torch.backends.cudnn.benchmark = not strict
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = fastest_before
            torch.use_deterministic_algorithms(strict_before, warn_only=warned_before)
            torch.set_num_threads(threads_before)
