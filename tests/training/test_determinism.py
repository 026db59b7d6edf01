"""Determinism holds for the length of a block, and is put back whatever happens in it."""

from __future__ import annotations

import os

import pytest
import torch

from training.determinism import deterministic
from training.errors import ConfigurationError


def test_the_seed_decides_and_the_block_leaves_no_trace() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    drawn = []
    for seed in (1, 1, 2):
        with deterministic(seed, 1):
            drawn.append(torch.rand(3))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.rand(3), expected)


def test_more_threads_than_cpus_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="threads is 100000, expected at most"), deterministic(0, 100_000):
        pass


def test_threads_and_kernels_are_chosen_and_put_back_after_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    threads = torch.get_num_threads()

    def fail() -> None:
        with deterministic(0, threads + 1):
            assert torch.get_num_threads() == threads + 1
            assert torch.are_deterministic_algorithms_enabled()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_without_strictness_any_kernel_will_do() -> None:
    with deterministic(0, 1, strict=False):
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.benchmark


def test_who_only_wants_warnings_still_does_afterwards() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with deterministic(0, 1):
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
