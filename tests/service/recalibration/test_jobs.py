"""The child process of a refit: what it says, and what happens when it dies, hangs or babbles."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from sqlalchemy import func, select, update

from service.errors import StateUnavailableError
from service.recalibration.jobs import _AT_ONCE
from service.recalibration.task import RefitRequest
from service.state import tables
from service.state.jobs import Job
from tests.waiting import PATIENCE_S, WAIT, until

from ..conftest import refit_processes


@pytest.fixture
def taught(start: Callable[..., Any], digits: Any) -> Callable[..., Any]:
    """Start a service that has labels enough."""

    def run(**changes: Any) -> Any:
        service = start(**changes)
        service.teach(digits.dimmed[:400], digits.labels[:400])
        return service

    return run


def test_a_child_that_dies_fails_its_job_and_nothing_else(taught: Any, digits: Any) -> None:
    service = taught()
    answer = service.http.post("/recalibrate")
    found = until(refit_processes)
    os.kill(found[0], signal.SIGKILL)
    job = service.job(answer.headers["location"])
    assert job["state"] == "failed"
    assert job["error"]["message"] == "The recalibration's process ended without a result."
    assert "-9" in job["error"]["found"]
    assert service.predict(digits.images[:3])
    assert service.recalibrate().status_code == 200


def test_a_child_that_takes_too_long_is_stopped(taught: Any, digits: Any) -> None:
    service = taught(refit_timeout_s=0.05)
    response = service.recalibrate()
    assert response.status_code == 500
    document = response.json()
    assert document["found"] == "more than 0.05 s"
    assert "CANDOR_REFIT_TIMEOUT_S" in document["remedy"]
    assert service.predict(digits.images[:1])
    assert refit_processes() == []


@pytest.mark.usefixtures("refits_here")
def test_of_more_labels_than_a_refit_reads_the_newest_are_taken_and_it_says_so(taught: Any) -> None:
    service = taught(refit_max_labels=300)
    result = service.recalibrate(calibrator="temperature").json()
    rows = result["rows"]
    assert 0 < sum(rows[role] for role in ("fit", "certify", "gate")) <= 300
    assert rows["left_out_before"] is not None
    assert next(iter(result["took"]["seconds"])) == "reading rows"
    assert result["took"]["peak_memory_mib"] > 0


def test_the_peak_memory_is_not_that_of_the_service() -> None:
    told = "from service.recalibration import refit_process as it; print(it._took([('', 0.0)])['peak_memory_mib'])"
    held = np.ones(100 << 20, dtype=np.float64)
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert 20 < int(done.stdout) < held.nbytes >> 20


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("raise SystemExit('no luck')", "exit status 1: no luck"),
        ("import os; os.write(2, b'x' * 10_000_000); raise SystemExit(3)", "exit status 3"),
        ("print('not json')", None),
        ("print('7')", None),
        ("print('{}')", None),
        ("print('{\"outcome\": {}}')", None),
        ("print('{\"error\": {}}')", None),
        ("print('{\"show\": {}}')", None),
    ],
)
def test_a_child_that_babbles_fails_its_job(
    used: Any, in_place_of_python: Callable[[str], None], program: str, found: str | None
) -> None:
    """Another program in the child's place: the service must take nothing on trust."""
    in_place_of_python(f"#!{sys.executable}\n{program}\n")
    response = used.recalibrate()
    assert response.status_code == 500, response.text
    assert response.json()["type"] == "/errors/error"
    if found is not None:
        assert found in response.json()["found"]
    assert used.http.get("/readyz").status_code == 200


def test_the_child_speaks_one_document_a_line_and_ends_when_nobody_listens() -> None:
    task = {
        "database_url": "sqlite:////nowhere/state.db",
        "bundle": "/nowhere",
        "model": "digits",
        "revision": "r1",
        "min_rows": 60,
        "alpha": 0.05,
        "margin": 0.002,
        "max_labels": 1_000,
        "run_timeout_s": 60.0,
        "request": {"mode": "dry_run"},
    }
    command = [sys.executable, "-m", "service.recalibration.refit_process"]
    done = subprocess.run(
        command, input=orjson.dumps(task) + b"\n", capture_output=True, timeout=PATIENCE_S, check=True
    )
    (message,) = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert message["error"]["class"] == "NoStateError"
    done = subprocess.run(command, input=b"", capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert b"is gone" in done.stderr


@pytest.mark.usefixtures("refits_here")
def test_refits_of_one_model_run_one_at_a_time(taught: Any) -> None:
    service = taught()
    locations = [service.http.post("/recalibrate").headers["location"] for _ in range(3)]
    found = [service.job(location) for location in locations]
    assert [job["state"] for job in found] == ["done"] * 3
    for earlier, later in itertools.pairwise(found):
        assert earlier["finished_at"] <= later["started_at"]
    assert [job["result"]["gate"]["attempt"] for job in found] == [1, 2, 3]


@pytest.mark.usefixtures("refits_here")
def test_jobs_that_another_replica_runs_leave_room_for_those_of_other_models(used: Any) -> None:
    jobs, others = used.runtime.jobs, [f"m{number}" for number in range(_AT_ONCE)]

    def on_loop(work: Coroutine[Any, Any, Job]) -> Job:
        return asyncio.run_coroutine_threadsafe(work, jobs._loop).result(PATIENCE_S)

    with ExitStack() as held:
        assert all(held.enter_context(used.runtime.database.try_lock(f"jobs/{model}")) for model in others)
        waiting = [on_loop(jobs.submit(model, RefitRequest("dry_run"), by="test")) for model in others]
        assert used.recalibrate().json()["state"] == "dry_run"
        for job in waiting:
            assert on_loop(jobs.cancel(job.id, by="test")).state == "cancelled"


def test_an_activation_that_came_too_late_keeps_the_proposal(taught: Any, digits: Any) -> None:
    """The pointer moves while the refit runs: what it compared with is no longer in service."""
    service = taught(limit_action_change=1.0)
    service.teach(digits.dimmed[400:1000], digits.labels[400:1000])
    policy = service.propose_policy()
    answer = service.http.post("/recalibrate", json={"mode": "activate"})
    service.job(answer.headers["location"], lambda job: job["state"] != "queued")
    service.activate(policy)
    job = service.job(answer.headers["location"])
    assert (job["state"], job["result"]["state"]) == ("done", "proposed")
    assert "Not activated" in job["result"]["summary"]
    listed = service.revisions()
    assert listed["active"] == policy
    assert [item["state"] for item in listed["items"]] == ["proposed", "active", "previous"]


@pytest.mark.usefixtures("refits_here")
def test_a_job_cut_off_after_its_proposal_ends_with_that_proposal(
    launch: Callable[..., Any], digits: Any, tmp_path: Path
) -> None:
    service = launch(tmp_path)
    try:
        service.teach(digits.dimmed[:400], digits.labels[:400])
        first = service.recalibrate(mode="propose").json()
        proposals = len(service.revisions()["items"])
        with service.runtime.database.begin() as connection:  # as if the process had died before the job was closed
            connection.execute(update(tables.jobs).values(state="running", result=None, finished_at=None))
    finally:
        service.close()
    service = launch(tmp_path)
    try:
        again = service.job(f"/v1/jobs/{first['job']}")
        assert again["state"] == "done"
        assert again["result"]["revision"] == first["revision"]
        assert again["result"]["state"] == first["state"]
        assert len(service.revisions()["items"]) == proposals
    finally:
        service.close()


@pytest.mark.usefixtures("refits_here")
def test_a_job_cut_off_after_its_activation_ends_as_active(
    launch: Callable[..., Any], digits: Any, tmp_path: Path
) -> None:
    service = launch(tmp_path, limit_action_change=1.0)
    try:
        service.teach(digits.dimmed, digits.labels)
        first = service.recalibrate(mode="activate").json()
        assert first["state"] == "active"
        assert "revision" not in service.runtime.revisions.get("digits", first["revision"]).report
        with service.runtime.database.begin() as connection:
            connection.execute(update(tables.jobs).values(state="running", result=None, finished_at=None))
    finally:
        service.close()
    service = launch(tmp_path)
    try:
        del first["traffic"]  # of the activation, which is not made again
        assert service.job(f"/v1/jobs/{first['job']}")["result"] == first
    finally:
        service.close()


@pytest.mark.usefixtures("refits_here")
def test_a_job_that_never_ends_is_given_up(used: Any) -> None:
    used.http.post("/recalibrate", headers=WAIT)
    with used.runtime.database.begin() as connection:
        newest = connection.execute(select(func.max(tables.jobs.c.number))).scalar()
        values = {"state": "running", "starts": 3, "result": None, "finished_at": None}
        connection.execute(update(tables.jobs).where(tables.jobs.c.number == newest).values(**values))
    job = used.job(f"/v1/jobs/j{newest}")
    assert job["state"] == "failed"
    assert "given up" in job["error"]["message"]


@pytest.mark.usefixtures("refits_here")
def test_an_end_that_the_database_does_not_take_is_written_later(used: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = used.runtime.jobs._store
    real, refused = store.update, []

    def update_later(*arguments: Any, **change: Any) -> Any:
        if "state" in change and len(refused) < 2:
            refused.append(change)
            raise StateUnavailableError("The disk is full.")
        return real(*arguments, **change)

    monkeypatch.setattr(store, "update", update_later)
    assert used.recalibrate().json()["state"] == "dry_run"
    assert len(refused) == 2


def test_two_replicas_run_each_job_once_and_take_over_what_the_other_left(
    launch: Callable[..., Any], digits: Any, postgresql_url: str
) -> None:
    state = postgresql_url.replace("postgresql://", "postgresql+psycopg://")
    one, other = launch(state), launch(state)
    try:
        one.teach(digits.dimmed[:400], digits.labels[:400])
        jobs_of_both = [service.http.post("/recalibrate").headers["location"] for service in (one, other, one)]
        found = sorted((other.job(location) for location in jobs_of_both), key=lambda job: job["started_at"])
        assert [job["result"]["gate"]["attempt"] for job in found] == [1, 2, 3]  # each has looked once
        for earlier, later in itertools.pairwise(found):
            assert earlier["finished_at"] <= later["started_at"]
        left = one.http.post("/recalibrate").headers["location"]
    finally:
        one.close()
    try:
        assert other.job(left)["state"] == "done"
    finally:
        other.close()
