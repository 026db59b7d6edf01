"""The prediction log never holds anyone up, and says what it lost."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import IntegrityError

from bundle.split import CERTIFY, FIT, GATE, group_hash, roles
from service.errors import CandorError, OverloadedError, StateUnavailableError
from service.state.database import Database
from service.state.inputs import unpacked
from service.state.insertion import insert_new
from service.state.prediction_rows import group_numbers
from service.state.predictions import PredictionLog
from service.state.tables import feedback, inputs, origins, predictions
from tests.waiting import PATIENCE_S

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
    assert tuple(origin)[1:] == ("pets", DIGEST, "r1", "", None)
    assert [row.id for row in rows] == ids
    assert b"".join(row.logits for row in rows) == logits.astype("<f4").tobytes()
    assert [(row.reference, row.label, row.action, row.propensity, row.sought) for row in rows] == [
        ("tx-1 ✓", 2, "block", 0.01, False),
        (None, 1, None, None, True),
    ]
    assert [np.float32(row.confidence) for row in rows] == [np.float32(0.9312), 1.0]
    assert {row.origin for row in rows} == {origin.id}
    assert {row.created_at for row in rows} == {1_795_171_524_979_331}
    assert rows[0].cluster == group_hash(database.secret, "card-5")


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
    assert outage.tried.wait(PATIENCE_S)
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
    assert outage.tried.wait(PATIENCE_S)
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


def test_an_origin_whose_commit_failed_is_stored_with_the_next_attempt(
    database: Database, log: PredictionLog, ids: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full: SQLite finds that out when it commits."""
    begin, failures = database.begin, count()

    @contextmanager
    def first_commit_fails() -> Iterator[Connection]:
        with begin() as connection:
            yield connection
            if next(failures) == 0:
                raise StateUnavailableError("database or disk is full")

    monkeypatch.setattr(database, "begin", first_commit_fails)
    names = ids(3)
    assert log.append(batch(names))
    assert log.flush()
    assert stored(database) == names
    assert log.dropped == 0


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
    with pytest.raises(StateUnavailableError, match="stopped"):
        log.promise(batch(ids(1))).result(0)


def test_a_promise_is_kept_when_the_rows_are_there(database: Database, ids: Callable[[int], list[str]]) -> None:
    log = PredictionLog(database, commit_interval_s=0)
    promises = [log.promise(batch(ids(2))) for _ in range(20)]
    for promise in promises:
        promise.result(PATIENCE_S)
    assert len(stored(database)) == 40
    log.close()


def test_promises_wait_out_an_outage_and_what_is_withdrawn_meanwhile_is_never_written(
    database: Database, monkeypatch: pytest.MonkeyPatch, ids: Callable[[int], list[str]]
) -> None:
    outage = Outage(database, monkeypatch)
    log = PredictionLog(database, commit_interval_s=0, capacity=10)
    tried, waiting, given_up = (log.promise(batch(ids(2))) for _ in range(3))
    assert outage.tried.wait(PATIENCE_S)
    assert tried.cancel()
    assert given_up.cancel()
    with pytest.raises(OverloadedError):
        log.promise(batch(ids(7))).result(0)  # more than fits even once `tried` has left
    outage.over.set()
    waiting.result(PATIENCE_S)
    assert log.flush()
    assert stored(database) == [prediction_id(2), prediction_id(3)]
    assert (log.written, log.dropped, log.depth) == (2, 7, 0)
    log.close()


def test_a_promise_that_cannot_be_kept_says_so(
    database: Database, monkeypatch: pytest.MonkeyPatch, ids: Callable[[int], list[str]]
) -> None:
    log = PredictionLog(database, commit_interval_s=0)
    with pytest.raises(CandorError, match="could not be logged"):
        log.promise(batch(ids(1), references=["\ud800"])).result(PATIENCE_S)
    outage = Outage(database, monkeypatch)
    tried = log.promise(batch(ids(1)))
    assert outage.tried.wait(PATIENCE_S)
    behind = log.promise(batch(ids(1)))
    log.close(timeout=0.01)
    for promise in (tried, behind):
        with pytest.raises(StateUnavailableError):
            promise.result(PATIENCE_S)


def test_a_sample_has_whole_groups_and_shares_stay_what_they_are(database: Database) -> None:
    log = PredictionLog(database, sample=0.25)
    names = [prediction_id(row) for row in range(4000)]
    groups = [f"card-{row % 1000}" for row in range(4000)]
    sought = [row % 1000 < 100 for row in range(4000)]
    assert log.append(batch(names, groups=groups, sought=sought, inputs=np.zeros((4000, 1), np.uint8)))
    log.close()
    with database.connect() as connection:
        rows = connection.execute(select(predictions.c.cluster, predictions.c.sought)).all()
    assert log.written + log.left_out == 4000
    assert log.written == len(rows)
    by_group = Counter(row.cluster for row in rows)
    assert set(by_group.values()) == {4}
    assert abs(len(by_group) - 250) < 70  # five standard deviations
    assert abs(sum(row.sought for row in rows) / len(rows) - 0.1) < 0.1
    role_of = roles(np.array(sorted(by_group)))
    assert min((role_of == role).mean() for role in (FIT, CERTIFY, GATE)) > 0.15


@pytest.mark.parametrize(("keep", "kept"), [("off", []), ("sought", [1, 3]), ("all", [0, 1, 2, 3])])
def test_inputs_are_kept_as_asked(database: Database, keep: Any, kept: list[int]) -> None:
    log = PredictionLog(database, keep_inputs=keep)
    images = np.arange(4 * 12, dtype=np.float32).reshape(4, 3, 4)[:, :, ::2]
    log.append(batch([prediction_id(row) for row in range(4)], inputs=images, sought=[False, True, False, True]))
    log.close()
    with database.connect() as connection:
        rows = connection.execute(select(inputs).order_by(inputs.c.id)).all()
    assert [row.id for row in rows] == [prediction_id(row) for row in kept]
    assert {row.created_at for row in rows} <= {1_000}
    np.testing.assert_array_equal(unpacked([row.content for row in rows], "float32", (3, 2)), images[kept])


def test_many_rows_are_copied_to_postgresql_and_few_or_known_ones_inserted(
    database: Database, logged: Write, ids: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    real, copied = psycopg.Cursor.copy, list[str]()

    def copy(cursor: Any, statement: str, *arguments: Any, **options: Any) -> Any:
        copied.append(statement.split()[1])
        return real(cursor, statement, *arguments, **options)

    monkeypatch.setattr(psycopg.Cursor, "copy", copy)
    few = logged(ids(8))
    assert not copied
    many = logged(ids(500))
    on_postgresql = database.engine.dialect.name == "postgresql"
    assert copied.count("predictions") == on_postgresql
    more = logged([*many[-1:], *ids(500)])[1:]
    assert copied.count("predictions") == 2 * on_postgresql
    assert stored(database) == [*few, *many, *more]


@pytest.mark.parametrize("count", [2, 300])
def test_a_key_that_exists_is_skipped_or_an_error(
    database: Database, ids: Callable[[int], list[str]], count: int
) -> None:
    rows = [(id_, 0, "pets", 1, place, "dog", "people", None, 5) for place, id_ in enumerate(ids(count))]
    names = ("target", "by_reference", "model", "batch", "position", "label", "source", "labelled_at", "received_at")
    for _ in range(2):
        with database.begin() as connection:
            insert_new(connection, feedback, names, rows)
    with pytest.raises(IntegrityError), database.begin() as connection:
        insert_new(connection, feedback, names, rows, skip=False)
    with database.connect() as connection:
        assert connection.execute(select(func.count()).select_from(feedback)).scalar_one() == count


class TestGroupsOfInputs:
    """Inputs without a group key: equal ones are a group."""

    SECRET = bytes(range(32))

    @pytest.mark.parametrize(
        "inputs",
        [
            np.arange(24, dtype=np.float32).reshape(4, 2, 3),
            np.arange(4, dtype=np.int64),
            np.array([(1.0, "ä"), (2.0, "b"), (3.0, "c"), (4.0, "d")], dtype=[("x", "<f4"), ("t", "<U8")]),
        ],
    )
    def test_equal_inputs_are_one_group_and_others_are_not(self, inputs: np.ndarray) -> None:
        numbers = group_numbers(self.SECRET, [None] * 8, np.concatenate([inputs, inputs]))
        assert numbers[:4] == numbers[4:]
        assert len({*numbers}) == 4
        assert group_numbers(self.SECRET[::-1], [None] * 4, inputs) != numbers[:4]
        strided = np.concatenate([inputs, inputs])[::2]  # not contiguous
        assert group_numbers(self.SECRET, [None] * 4, strided) == numbers[::2]

    def test_a_key_comes_first_and_is_never_an_input(self) -> None:
        inputs = np.zeros((3, 0), np.float32)
        first, keyed, last = group_numbers(self.SECRET, [None, "card", None], inputs)
        assert first == last != keyed
        assert group_numbers(self.SECRET, [], inputs[:0]) == []
