"""How many workers, and what each of them gets."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import ConfigurationError
from service.settings import Settings
from service.workers.plan import processors_each, share_of, workers_of


@pytest.mark.parametrize(("cpus", "workers"), [(8.0, 8), (2.5, 2), (0.5, 1)])
def test_auto_is_one_per_processor(cpus: float, workers: int) -> None:
    assert workers_of(Settings(workers="auto"), "cpu", cpus=cpus) == workers


def test_auto_is_one_on_a_gpu() -> None:
    assert workers_of(Settings(workers="auto"), "cuda", cpus=8.0) == 1
    assert workers_of(Settings(workers=3), "cuda", cpus=8.0) == 3


@given(cpus=st.floats(0.1, 512), workers=st.integers(1, 64) | st.just("auto"), threads=st.none() | st.integers(1, 64))
def test_threads_never_exceed_the_processors(cpus: float, workers: int | Literal["auto"], threads: int | None) -> None:
    settings = Settings(workers=workers, threads=threads, provider="cpu")
    number = workers_of(settings, "cpu", cpus=cpus)
    try:
        share = share_of(settings, number, cpus=cpus)
    except ConfigurationError:
        assert threads is not None
        assert threads > max(1, cpus / number)
        return
    each = processors_each(number, cpus=cpus)  # of the threads that decode, and of numerical libraries
    assert share.threads is not None
    assert share.threads <= each
    if number <= max(1, cpus):
        assert number * each <= max(1, cpus)
    else:
        assert each == 1, "more workers than processors have one thread each, which the start and `candor doctor` say"
    assert workers != "auto" or number <= max(1, cpus), "more workers than processors only if they were asked for"


@pytest.mark.parametrize(
    ("cpus", "workers", "threads"), [(8.0, 1, 8), (8.0, 2, 4), (8.0, 3, 2), (8.0, 8, 1), (2.0, 8, 1)]
)
def test_workers_divide_the_processors(cpus: float, workers: int, threads: int) -> None:
    assert share_of(Settings(), workers, cpus=cpus).threads == threads


@given(limit=st.integers(1, 10**6), workers=st.integers(1, 64))
def test_limits_hold_for_all_workers_together(limit: int, workers: int) -> None:
    limits = dict.fromkeys(("max_connections", "max_connections_per_address", "max_queued_rows", "log_capacity"), limit)
    share = share_of(Settings(**limits), workers, cpus=64.0)
    for name in limits:
        assert limit <= workers * getattr(share, name) < limit + workers


@pytest.mark.parametrize(
    ("workers", "most", "found"),
    [(4, 2, "3 threads in each of 4 workers on 8 processors"), (1, 8, "9 threads in one worker on 8 processors")],
)
def test_more_threads_than_processors_are_refused(workers: int, most: int, found: str) -> None:
    assert share_of(Settings(threads=most), workers, cpus=8.0).threads == most
    with pytest.raises(ConfigurationError, match="more threads than processors") as refused:
        share_of(Settings(threads=most + 1), workers, cpus=8.0)
    assert refused.value.found == found
    assert refused.value.expected == f"at most {most} threads per worker"
