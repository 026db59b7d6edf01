"""The prediction log never holds anyone up, and says what it lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest
from sqlalchemy import Connection, func, select

from service.decisions.split import cluster_hash
from service.errors import StateUnavailableError
from service.state.database import Database
from service.state.predictions import PredictionLog
from service.state.tables import origins, predictions

from .conftest import DIGEST, batch, prediction_id

Write = Callable[..., list[str]]


def stored(database: Database) -> list[str]:
    with database.connect() as connection:
        return list(connection.scalars(select(predictions.c.id).order_by(predictions.c.id)))


def clusters(database: Database) -> list[int]:
    with database.connect() as connection:
        return list(connection.scalars(select(predictions.c.cluster).order_by(predictions.c.id)))


@pytest.fixture
def ids() -> Callable[[int], list[str]]:
    numbers = count()
    return lambda n: [prediction_id(next(numbers)) for _ in range(n)]


class Outage:
    """A database that does not answer until it is told to."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.over = threading.Event()
        self.tried = threading.Event()
        begin = database.begin

        @contextmanager
        def unanswered() -> Iterator[Connection]:
            self.tried.set()
            if not self.over.is_set():
                raise StateUnavailableError("no answer")
            with begin() as connection:
                yield connection

        monkeypatch.setattr(database, "begin", unanswered)
        monkeypatch.setattr("service.state.predictions.RETRY_S", 0.001)


def test_every_column_is_kept(database: Database, logged: Write) -> None:
    logits = np.array([[0.1, -np.inf, 3.4e38], [1e-45, -0.0, 2.5]], dtype=np.float32)
    changes = {
        "references": ["tx-1 ✓", None],
        "groups": ["card-5", None],
        "logits": logits,
        "labels": np.array([2, 1]),
        "confidence": np.array([0.9312, 1.0], dtype=np.float32),
        "actions": ["block", None],
        "propensities": [0.01, None],
        "sought": [False, True],
        "policy": None,
        "created_at": 1_795_171_524_979_331,
    }
    ids = logged([prediction_id(1), prediction_id(2)], **changes)
    with database.connect() as connection:
        rows = connection.execute(select(predictions).order_by(predictions.c.id)).all()
        origin = connection.execute(select(origins)).one()
    assert tuple(origin)[1:] == ("pets", DIGEST, "r1", "")
    assert [row.id for row in rows] == ids
    assert b"".join(row.logits for row in rows) == logits.astype("<f4").tobytes()
    assert [(row.reference, row.label, row.action, row.propensity, row.sought) for row in rows] == [
        ("tx-1 ✓", 2, "block", 0.01, False),
        (None, 1, None, None, True),
    ]
    assert [np.float32(row.confidence) for row in rows] == [np.float32(0.9312), 1.0]
    assert {row.origin for row in rows} == {origin.id}
    assert {row.created_at for row in rows} == {1_795_171_524_979_331}
    assert rows[0].cluster == cluster_hash(database.secret, "card-5")


def test_rows_of_one_group_or_one_input_share_a_cluster(database: Database, logged: Write) -> None:
    inputs = np.array([[1, 2], [1, 2], [3, 4], [1, 2], [5, 6]], dtype=np.float32)
    groups = [None, None, None, "card-5", "card-5"]
    logged([prediction_id(n) for n in range(5)], inputs=inputs, groups=groups, logits=np.zeros((5, 3), np.float32),
           labels=np.zeros(5, int), confidence=np.ones(5))  # fmt: skip
    a, b, c, d, e = clusters(database)
    assert a == b
    assert d == e
    assert len({a, c, d}) == 3


def test_a_view_of_an_input_counts_by_its_values(database: Database, logged: Write) -> None:
    wide = np.arange(16, dtype=np.float32).reshape(2, 8)
    logged([prediction_id(0), prediction_id(1)], inputs=wide[:, ::2])
    logged([prediction_id(2), prediction_id(3)], inputs=np.ascontiguousarray(wide[:, ::2]))
    assert clusters(database)[:2] == clusters(database)[2:]


def test_origins_are_stored_once(database: Database, other: Database, logged: Write) -> None:
    logged([prediction_id(0)])
    logged([prediction_id(1)], revision="r2")
    logged([prediction_id(2)])
    second = PredictionLog(other)
    second.append(batch([prediction_id(3)]))
    second.close()
    with database.connect() as connection:
        assert connection.execute(select(func.count()).select_from(origins)).scalar() == 2


def test_what_was_appended_before_a_flush_is_there_after_it(database: Database, log: PredictionLog) -> None:
    for start in range(0, 3000, 100):
        assert log.append(batch([prediction_id(start + row) for row in range(100)]))
    assert log.flush()
    assert len(stored(database)) == 3000
    assert (log.written, log.dropped, log.depth) == (3000, 0, 0)


def test_a_flush_does_not_wait_for_company(database: Database, ids: Callable[[int], list[str]]) -> None:
    log = PredictionLog(database, commit_interval_s=3600)
    log.append(batch(ids(3)))
    assert log.flush()
    log.append(batch(ids(3)))
    log.close()
    assert log.written == 6


def test_many_threads_lose_nothing(database: Database, log: PredictionLog) -> None:
    def fill(thread: int) -> None:
        for row in range(50):
            assert log.append(batch([prediction_id(thread * 1000 + row)]))

    threads = [threading.Thread(target=fill, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.flush()
    assert len(stored(database)) == 400


def test_an_outage_holds_nobody_up_and_what_does_not_fit_is_counted(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    ids: Callable[[int], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(database, monkeypatch)
    log = PredictionLog(database, capacity=10)
    assert log.append(batch(ids(6)))
    assert outage.tried.wait(10)
    assert not log.append(batch(ids(5)))
    assert log.append(batch(ids(4)))
    assert (log.depth, log.dropped, log.written) == (10, 5, 0)
    assert not log.flush(0.01)
    outage.over.set()
    assert log.flush()
    assert (log.depth, log.dropped, log.written) == (0, 5, 10)
    log.close()
    assert len(stored(database)) == 10
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_waiting_inputs_are_bounded_in_bytes_too(
    database: Database, monkeypatch: pytest.MonkeyPatch, ids: Callable[[int], list[str]]
) -> None:
    outage = Outage(database, monkeypatch)
    log = PredictionLog(database, capacity_bytes=1000)
    assert not log.append(batch(ids(1), inputs=np.zeros((1, 1000), np.uint8)))
    assert log.append(batch(ids(1), inputs=np.zeros((1, 900), np.uint8)))
    assert not log.append(batch(ids(1), inputs=np.zeros((1, 900), np.uint8)))
    outage.over.set()
    assert log.flush()
    assert log.append(batch(ids(1), inputs=np.zeros((1, 900), np.uint8)))
    log.close()
    assert (log.written, log.dropped) == (2, 2)


def test_closing_during_an_outage_ends_and_counts_what_is_lost(
    database: Database, monkeypatch: pytest.MonkeyPatch, ids: Callable[[int], list[str]]
) -> None:
    outage = Outage(database, monkeypatch)
    log = PredictionLog(database)
    log.append(batch(ids(3)))
    assert outage.tried.wait(10)
    log.append(batch(ids(4)))
    log.close(timeout=0.01)
    assert (log.depth, log.dropped, log.written) == (0, 7, 0)
    assert not log.append(batch(ids(1)))


def test_a_commit_whose_answer_was_lost_is_not_written_twice(
    database: Database, monkeypatch: pytest.MonkeyPatch, ids: Callable[[int], list[str]]
) -> None:
    begin, answers = database.begin, count()

    @contextmanager
    def forgetful() -> Iterator[Connection]:
        with begin() as connection:
            yield connection
        if next(answers) == 1:  # the second transaction writes the rows; the first writes their origin
            raise StateUnavailableError("the connection broke after the commit")

    monkeypatch.setattr(database, "begin", forgetful)
    monkeypatch.setattr("service.state.predictions.RETRY_S", 0.001)
    log = PredictionLog(database)
    log.append(batch(ids(3)))
    log.close()
    assert (log.written, log.dropped, len(stored(database))) == (3, 0, 3)


@pytest.mark.parametrize("bad", [{"references": ["\ud800"]}, {"logits": np.zeros((2, 3), np.float32)}])
def test_one_batch_that_cannot_be_stored_takes_no_other_along(
    database: Database,
    ids: Callable[[int], list[str]],
    bad: dict[str, object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = PredictionLog(database, commit_interval_s=3600)
    for changes in ({}, {}, bad, {}):
        log.append(batch(ids(1), **changes))
    log.close()
    assert (log.written, log.dropped, len(stored(database))) == (3, 1, 3)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_close_is_final_and_may_be_repeated(log: PredictionLog, ids: Callable[[int], list[str]]) -> None:
    log.close()
    log.close()
    assert not log.append(batch(ids(2)))
    assert log.dropped == 2
    assert log.flush()
