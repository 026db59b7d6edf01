"""`candor worker` beside services that only serve: who updates the state, who runs recalibrations."""

from __future__ import annotations

from typing import Any

import pytest

from tests.waiting import until

from .conftest import Spawn


def test_a_worker_updates_the_state_and_runs_what_services_leave_to_it(
    spawn: Spawn, digits: Any, postgresql_url: str
) -> None:
    service = spawn(wait=False, database_url=postgresql_url, background="false")
    until(lambda: "waiting for `candor worker`" in "".join(service.log), lambda: "".join(service.log))
    worker = spawn("worker", database_url=postgresql_url, background="false", workers="2")
    service.wait_until_it_listens()
    assert (service.metric("candor_background"), worker.metric("candor_background")) == (0, 1)
    assert service.http.get("/readyz").status_code == worker.http.get("/readyz").status_code == 200

    service.teach(digits.dimmed, digits.labels)
    answer = service.recalibrate(mode="propose", calibrator="temperature")
    assert answer.status_code == 200, answer.text
    assert answer.json()["gate"]["passed"]
    count = "candor_recalibrations_total"
    assert (service.metric(count), until(lambda: worker.metric(count))) == (0, 1)


@pytest.mark.parametrize("command", [["serve", "--no-background"], ["worker"]])
def test_a_state_in_sqlite_is_refused(spawn: Spawn, command: list[str]) -> None:
    done = spawn.process(*command)
    assert done.returncode == 2
    assert "A state in SQLite has one server" in done.stderr
    assert "Use PostgreSQL" in done.stderr
