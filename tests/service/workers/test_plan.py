"""How many workers, and what each of them gets."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(("cpus", "workers", "threads"), [(8.0, 2, 3), (8.0, 4, 1), (8.0, 8, 1), (2.0, 8, 1)])
def test_processors_and_connections_are_divided(cpus: float, workers: int, threads: int) -> None:
    share = share_of(Settings(max_connections=100), workers, cpus=cpus)
    assert share.threads == threads
    assert (workers - 1) * share.max_connections < 100 <= workers * share.max_connections


def test_more_threads_than_processors_are_refused() -> None:
    assert share_of(Settings(threads=2), 4, cpus=8.0).threads == 2
    with pytest.raises(ConfigurationError, match="more threads than there are processors") as refused:
        share_of(Settings(threads=3), 4, cpus=8.0)
    assert refused.value.expected == "at most 2 threads per worker"
