"""Recalibrations read from a real streaming replica, and miss no label that was answered as stored."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import psycopg
import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs

from service.recalibration.source import read_rows
from service.recalibration.task import RefitRequest, RefitTask, Started
from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.jobs import JobStore
from service.state.numbering import number_in
from service.state.tables import feedback
from tests.service.cluster import Cluster


@pytest.fixture
def state(cluster: Cluster) -> Iterator[Database]:
    opened = Database.open(cluster.url)
    yield opened
    opened.close()


@pytest.fixture
def standby(cluster: Cluster, state: Database) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        opened = Cluster.standby(Path(folder), cluster)
        yield opened.url
        opened.crash()


def replay(url: str, what: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_wal_replay_{what}()")


def labels(database: Database, until_us: int | None) -> tuple[int, int | None]:
    with database.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(feedback)).scalar_one()), until_us


def started(state: Database, read_url: str) -> RefitTask:
    """A label, and then a job that starts."""
    store = JobStore(state)
    FeedbackStore(state).add("pets", [FeedbackItem(None, f"tx-{store.unfinished()}", "cat")], by="till")
    job = store.start(store.create("pets", "recalibrate", {}, "ops").id)
    number = number_in("j", job.id)
    assert number is not None and job.started_at is not None  # noqa: PT018 — it has started
    url = state.engine.url.render_as_string(hide_password=False)
    return RefitTask(
        url,
        "",
        "pets",
        "r1",
        60,
        0.05,
        0.002,
        10,
        60.0,
        RefitRequest(),
        read_url=read_url,
        started=Started(number, job.created_at, job.starts, job.started_at),
    )


def test_a_replica_is_read_once_it_has_caught_up_with_the_start(state: Database, standby: str) -> None:
    task = started(state, standby)
    assert task.started is not None
    assert read_rows(task, labels) == ((1, task.started.at_us), "replica")
    replay(standby, "pause")
    later = started(state, standby)
    assert later.started is not None
    assert read_rows(later, labels, catch_up_s=0.0) == ((2, None), "primary")  # it lags behind
    resumed = Timer(0.5, replay, (standby, "resume"))
    resumed.start()
    assert read_rows(later, labels, catch_up_s=60) == ((2, later.started.at_us), "replica")
    resumed.join()
    assert read_rows(later, labels)[1] == "replica"


def test_a_replica_that_is_gone_or_of_another_state_is_not_read(
    state: Database, cluster: Cluster, postgresql_url: str
) -> None:
    Database.open(postgresql_url).close()
    for url in (postgresql_url, "postgresql://postgres@127.0.0.1:1/postgres"):
        task = started(state, url)
        found, read_from = read_rows(task, labels, catch_up_s=0.0)
        assert (found[1], read_from) == (None, "primary")


def test_the_setting_reaches_a_recalibration(launch: Callable[..., Any], digits: Any, postgresql_url: str) -> None:
    """The same server under two names shows the wiring."""
    service = launch(postgresql_url, database_read_url=postgresql_url)
    service.teach(digits.dimmed[:400], digits.labels[:400])
    assert service.recalibrate().json()["read_from"] == "replica"
    service.close()


def test_a_replica_that_is_gone_is_said_and_stops_no_recalibration(start: Callable[..., Any], digits: Any) -> None:
    """The process of a recalibration tells messages on standard output; a line of its log must not break them."""
    service = start(database_read_url="postgresql://postgres@127.0.0.1:1/postgres")
    service.teach(digits.dimmed[:400], digits.labels[:400])
    with capture_logs() as lines:
        assert service.recalibrate().json()["read_from"] == "primary"
    said = [line for line in lines if line["event"] == "recalibration reads from the primary"]
    assert [(line["log_level"], bool(line["replica"])) for line in said] == [("warning", True)]
