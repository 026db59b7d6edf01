"""How many workers, and what each of them gets."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import ConfigurationError
from service.settings import Settings
from service.workers import plan
from service.workers.plan import share_of, workers_of


@pytest.mark.parametrize(("cpus", "workers"), [(8.0, 8), (2.5, 2), (0.5, 1)])
def test_auto_is_one_per_processor(cpus: float, workers: int) -> None:
    assert workers_of(Settings(workers="auto", provider="cpu"), cpus=cpus) == workers


def test_auto_is_one_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "resolve_provider", lambda _: "cuda")
    assert workers_of(Settings(workers="auto"), cpus=8.0) == 1
    assert workers_of(Settings(workers=3), cpus=8.0) == 3


@given(cpus=st.floats(0.1, 512), workers=st.integers(1, 64) | st.just("auto"), threads=st.none() | st.integers(1, 64))
def test_threads_never_exceed_the_processors(cpus: float, workers: int | Literal["auto"], threads: int | None) -> None:
    settings = Settings(workers=workers, threads=threads, provider="cpu")
    number = workers_of(settings, cpus=cpus)
    try:
        share = share_of(settings, number, cpus=cpus)
    except ConfigurationError:
        assert threads is not None
        assert threads > max(1, cpus / number)
        return
    assert share.threads is not None
    assert share.threads == 1 or number * share.threads <= cpus
    assert workers != "auto" or number <= max(1, cpus), "more workers than processors only if they were asked for"


@pytest.mark.parametrize(("cpus", "workers", "threads"), [(8.0, 2, 3), (8.0, 4, 1), (8.0, 8, 1), (2.0, 8, 1)])
def test_each_worker_leaves_a_processor_to_its_requests(cpus: float, workers: int, threads: int) -> None:
    assert share_of(Settings(), workers, cpus=cpus).threads == threads


@given(limit=st.integers(1, 10**6), workers=st.integers(1, 64))
def test_limits_hold_for_all_workers_together(limit: int, workers: int) -> None:
    limits = dict.fromkeys(("max_connections", "max_queued_rows", "log_capacity"), limit)
    share = share_of(Settings(**limits), workers, cpus=64.0)
    for name in limits:
        assert limit <= workers * getattr(share, name) < limit + workers


def test_more_threads_than_processors_are_refused() -> None:
    assert share_of(Settings(threads=2), 4, cpus=8.0).threads == 2
    with pytest.raises(ConfigurationError, match="more threads than there are processors") as refused:
        share_of(Settings(threads=3), 4, cpus=8.0)
    assert refused.value.expected == "at most 2 threads per worker"
