"""Jobs move from queued to one end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from service.errors import UnknownJobError
from service.state import audit
from service.state.database import Database
from service.state.jobs import JobStore


def test_a_job_from_request_to_result(database: Database) -> None:
    store = JobStore(database)
    job = store.create("pets", "recalibrate", {"mode": "dry_run"}, "ops")
    assert (job.id, job.state, job.request, job.by, job.progress) == ("j1", "queued", {"mode": "dry_run"}, "ops", "")
    assert (job.started_at, job.finished_at, job.result, job.error) == (None, None, None, None)
    running = store.start("j1")
    assert (running.state, running.starts, running.finished_at) == ("running", 1, None)
    assert running.started_at is not None
    assert store.update("j1", progress="solving").progress == "solving"
    done = store.update("j1", state="done", result={"nll": 0.25})
    assert (done.state, done.result, done.error) == ("done", {"nll": 0.25}, None)
    assert done.finished_at is not None
    assert store.get("j1") == done
    assert [entry.subject for entry in audit.read(database, "pets")] == ["j1"]


def test_unfinished_jobs_outlive_a_restart_in_order(database: Database, url: str) -> None:
    store = JobStore(database)
    for _ in range(12):
        store.create("pets", "recalibrate", {}, "ops")
    store.start("j2")
    store.update("j3", state="failed", error={"title": "Too few labels"})
    database.close()
    again = Database.open(url)
    expected = ["j1", "j2", *(f"j{number}" for number in range(4, 13))]
    assert [job.id for job in JobStore(again).unfinished()] == expected
    again.close()


def test_of_two_ends_the_first_stays(database: Database, other: Database) -> None:
    JobStore(database).create("pets", "recalibrate", {}, "ops")
    ends = [(JobStore(database), "done"), (JobStore(other), "cancelled")] * 3
    with ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(lambda end: end[0].update("j1", state=end[1]), ends))  # type: ignore[arg-type]
    assert all(job == seen[0] for job in seen)
    assert JobStore(database).update("j1", progress="again") == seen[0]
    assert JobStore(database).start("j1") == seen[0]


def test_starts_are_counted_unless_the_job_is_put_back(database: Database) -> None:
    store = JobStore(database)
    store.create("pets", "recalibrate", {}, "ops")
    first = store.start("j1")
    store.put_back(first)
    assert (store.get("j1").state, store.get("j1").starts) == ("queued", 0)
    store.start("j1")
    second = store.start("j1")
    assert second.starts == 2
    store.put_back(first)  # somebody else has started it since
    assert store.get("j1") == second


def test_a_job_that_is_not_there(database: Database) -> None:
    store = JobStore(database)
    for id_ in ("j7", "7", "r1", "j", "j-1", "j1; DROP TABLE jobs", "j²", "j" + "9" * 30):
        with pytest.raises(UnknownJobError):
            store.get(id_)
        with pytest.raises(UnknownJobError):
            store.update(id_, progress="x")
        with pytest.raises(UnknownJobError):
            store.start(id_)
