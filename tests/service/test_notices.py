"""Replicas hear of changes at once: with these polls, hours would pass otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from service.state import notices
from tests.waiting import until

from .conftest import InThread, Process, Spawn, new_postgresql
from .test_replicas import Proxy, proxy, through  # noqa: F401 — a fixture

POLL_S = "3600"


def active(replica: InThread | Process) -> str:
    answer: str = replica.http.get("/readyz").json()["models"]["digits"]
    return answer


def test_changes_reach_every_replica_and_all_its_workers_and_again_after_a_lost_connection(
    spawn: Spawn,
    start: Callable[..., InThread],
    postgresql_url: str,
    proxy: Proxy,  # noqa: F811
) -> None:
    one = start(state=postgresql_url, poll_interval_s=float(POLL_S))
    other = spawn(database_url=through(postgresql_url, proxy), poll_interval_s=POLL_S, workers="2")
    until(lambda: one.metric("candor_state_notices") == other.metric("candor_state_notices") == 1)
    first, second = one.propose_policy(share=0.5), one.propose_policy(share=0.6)
    one.activate(first)
    until(lambda: other.metric("candor_revision_info", revision=first) == 1 and active(other) == first)
    assert other.metric("candor_revision_info", revision="r1") == 0  # in no worker
    assert other.http.post("/v1/models/digits/unload").status_code == 200
    until(lambda: not active(one))
    assert other.http.post("/v1/models/digits/load").status_code == 200
    until(lambda: active(one) == first)

    proxy.cut()
    until(lambda: other.metric("candor_state_notices") == 0)
    until(lambda: "changes arrive by polling only" in "".join(other.log))
    one.activate(second)
    assert active(other) == first
    proxy.mend()
    until(lambda: active(other) == second and other.metric("candor_state_notices") == 1)
    one.activate(first)
    until(lambda: other.metric("candor_epoch") == one.metric("candor_epoch"))


@pytest.fixture
def elsewhere() -> Iterator[str]:
    yield from new_postgresql()


def test_a_connection_that_delivers_nothing_is_found_out_and_said_once(
    start: Callable[..., InThread],
    postgresql_url: str,
    elsewhere: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notices, "_HEARD_WITHIN_S", 0.05)
    monkeypatch.setattr(notices, "_FIRST_RETRY_S", 0.01)
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(notices.logger, "warning", lambda event, **more: said.append({"event": event, **more}))
    service = start(state=postgresql_url, database_direct_url=elsewhere)  # as deaf as a pooler in transaction mode
    listeners = "SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN candor' AND datname = current_database()"
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        seen: set[Any] = set()

        def tried() -> bool:
            seen.update(connection.execute(listeners).fetchall())
            return len(seen) > 2

        until(tried)
    assert service.metric("candor_state_notices") == 0
    one = service.propose_policy()
    service.activate(one)
    assert active(service) == one
    service.close()
    assert [each["event"] for each in said] == ["changes arrive by polling only"]
    assert "CANDOR_DATABASE_DIRECT_URL" in said[0]["remedy"]
