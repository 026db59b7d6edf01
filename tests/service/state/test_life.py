"""Rows that are too old, or of a subject who wants them gone, go with all that hangs on them; nothing else goes."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Table, func, select, text

from service.state import audit, retention
from service.state.database import Database, now_us
from service.state.deletion import Deleted
from service.state.erasure import Subject, erase
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.predictions import PredictionLog
from service.state.retention import (
    DAY_US,
    Retention,
    count_older,
    old_inputs,
    old_predictions,
    old_requests,
    old_targets,
    prune,
)
from service.state.tables import feedback, feedback_batches, inputs, origins, predictions

from .conftest import batch, prediction_id

OLD, CUT, NEW = 1_000, 2_000, 3_000


def write(database: Database, numbers: Sequence[int], **changes: Any) -> list[str]:
    ids = [prediction_id(number) for number in numbers]
    log = PredictionLog(database, keep_inputs="all")
    assert log.append(batch(ids, **changes))
    log.close()
    assert log.written == len(ids)
    return ids


def label(database: Database, monkeypatch: pytest.MonkeyPatch, at: int, *names: str, **keywords: Any) -> None:
    items = [
        FeedbackItem(name, None, "cat") if name.startswith("01J") else FeedbackItem(None, name, "cat") for name in names
    ]
    with monkeypatch.context() as patch:
        patch.setattr("service.state.feedback.now_us", lambda: at)
        FeedbackStore(database).add(keywords.pop("model", "pets"), items, by="till", **keywords)


def count(database: Database, table: Table) -> int:
    with database.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def left(database: Database) -> tuple[int, int, int, int]:
    return tuple(count(database, table) for table in (predictions, inputs, feedback, feedback_batches))  # type: ignore[return-value]


@pytest.fixture
def lived(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Five old and three new predictions with labels by id, by reference, by one that both have, and for none."""
    old = write(database, range(5), created_at=OLD, references=["a", "b", "both", None, None])
    new = write(database, range(5, 8), created_at=NEW, references=["c", "both", None])
    write(database, [20], created_at=NEW, references=["a"], model="cars")  # another model's reference is another name
    label(database, monkeypatch, OLD, old[0], old[3], "a", "both", "never", idempotency_key="k", body_digest=b"d")
    label(database, monkeypatch, OLD, "a", model="cars")
    label(database, monkeypatch, NEW, new[0], "c", "b", "later")
    return database


def test_what_is_too_old_goes_with_all_that_hangs_on_it(lived: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_TRANSACTION", 2)
    expected = Deleted(predictions=5, inputs=5, labels=5, receipts=2)  # by id 2, "a", "never", and the late one of "b"
    assert count_older(lived, CUT) == expected
    assert prune(lived, CUT, by="ops") == expected
    assert count_older(lived, CUT) == Deleted()
    assert prune(lived, CUT, by="ops") == Deleted()
    assert left(lived) == (4, 4, 5, 1)
    with lived.connect() as connection:
        kept = {(model, target) for model, target in connection.execute(select(feedback.c.model, feedback.c.target))}
    assert kept == {("pets", prediction_id(5)), ("pets", "c"), ("pets", "both"), ("pets", "later"), ("cars", "a")}
    [entry] = [entry for entry in audit.read(lived) if entry.action == "prune"]
    assert (entry.by, entry.detail["predictions"], entry.detail["labels"]) == ("ops", 5, 5)


def test_inputs_may_go_before_their_predictions(lived: Database) -> None:
    assert prune(lived, None, inputs_before_us=CUT, by="ops") == Deleted(inputs=5)
    assert left(lived)[:2] == (9, 4)


def test_a_stop_comes_between_transactions(lived: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_TRANSACTION", 2)
    asked = iter([False, True] + [True] * 99)
    assert prune(lived, CUT, by="ops", stopped=lambda: next(asked)).predictions == 2
    assert left(lived)[0] == 7
    assert prune(lived, CUT, by="ops").predictions == 3


def test_one_replica_at_a_time_deletes(database: Database, other: Database) -> None:
    now = now_us()
    write(database, range(4), created_at=now - 3 * DAY_US)
    write(database, range(4, 6), created_at=now)
    mine = Retention(other, days=2, inputs_days=None)
    with database.try_lock(retention.LOCK) as held:
        assert held
        mine.run()
    assert mine.deleted == Deleted()
    mine.run()
    assert mine.deleted == Deleted(predictions=4, inputs=4)
    mine.close()
    assert left(database)[0] == 2
    partitions = database.engine.dialect.name == "postgresql"  # to make ahead
    assert Retention(database, days=None, inputs_days=None).needed == partitions


def test_old_rows_are_found_by_an_index(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    write(database, range(2_000), created_at=NEW, references=[f"tx-{row}" for row in range(2_000)])
    label(database, monkeypatch, NEW, *(f"tx-{row}" for row in range(1_000)))
    label(database, monkeypatch, OLD, "never")
    plans = []
    on_postgresql = database.engine.dialect.name == "postgresql"
    if on_postgresql:  # else the plan hangs on whether it has come round to counting, as SQLite never does
        with database.begin() as connection:
            for table in (predictions, inputs, feedback, feedback_batches, origins):
                connection.execute(text(f"ANALYZE {table.name}"))
    with database.begin() as connection:
        origin = connection.execute(select(origins.c.id)).scalar_one()
        if on_postgresql:
            for way in ("seqscan", "hashjoin", "mergejoin"):  # or it would read so few rows whole, and be right
                connection.execute(text(f"SET LOCAL enable_{way} = off"))
        queries = {
            "predictions_by_time": old_predictions(origin, CUT),
            "inputs_by_time": old_inputs(CUT),
            "feedback_batches_by_time": old_requests(CUT),
            "feedback_by_time": old_targets(0, CUT),
            "predictions_by_reference": old_targets(1, CUT),
        }
        for query in queries.values():
            sql = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
            explained = connection.exec_driver_sql(f"EXPLAIN {'' if on_postgresql else 'QUERY PLAN'} {sql}")
            plans.append(" ".join(str(tuple(row)) for row in explained))
        ways = {index: {index} for index in queries}
        if on_postgresql:  # the index of a partition, for the tables that have them
            tree = "SELECT i.relid::text FROM pg_partition_tree(CAST(:index AS regclass)) i"
            ways = {name: {name, *connection.scalars(text(tree), {"index": name})} for name in queries}
    found = zip(ways.items(), plans, strict=True)
    missed = [name for (name, any_of), plan in found if not any(way in plan for way in any_of)]
    assert missed == []


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (Subject("group", "card-5"), Deleted(predictions=3, inputs=3, labels=3, receipts=1)),
        (Subject("reference", "a"), Deleted(predictions=1, inputs=1, labels=2, receipts=1)),
        (Subject("reference", "never"), Deleted(labels=1, receipts=1)),
        (Subject("prediction_id", prediction_id(3)), Deleted(predictions=1, inputs=1, labels=1, receipts=1)),
        (Subject("prediction_id", prediction_id(77)), Deleted(labels=1, receipts=1)),
        (Subject("group", "card-7"), Deleted()),
    ],
    ids=lambda value: value.kind if isinstance(value, Subject) else "",
)
def test_a_subject_is_erased_and_nobody_else(
    database: Database, monkeypatch: pytest.MonkeyPatch, subject: Subject, expected: Deleted
) -> None:
    groups = ["card-5", "card-5", "card-6", "card-5", None]
    ids = write(
        database,
        range(5),
        references=["a", "both", "both", None, None],
        groups=groups,
        inputs=np.eye(5, dtype=np.uint8),
    )
    write(database, [30], groups=["card-5"], model="cars")
    named = ids[0], ids[3], "a", "both", "never", prediction_id(77)
    label(database, monkeypatch, OLD, *named, idempotency_key="k", body_digest=b"d")
    label(database, monkeypatch, OLD, ids[4])
    before = left(database)
    assert erase(database, "pets", subject, by="dpo") == expected
    gone = (expected.predictions, expected.inputs, expected.labels, 0)  # both requests have other labels
    assert left(database) == tuple(was - now for was, now in zip(before, gone, strict=True))
    assert erase(database, "pets", subject, by="dpo") == Deleted()
    first, again = (entry for entry in audit.read(database, "pets") if entry.action == "erase")
    assert first.subject == again.subject
    assert len(again.subject) == 32
    assert str(again).count(f"'{subject.name}'") == 0
    assert set(again.detail) == {"kind", "predictions", "inputs", "labels", "receipts", "cases"}
    assert again.detail["predictions"] == expected.predictions


def test_a_late_label_for_an_erased_prediction_waits_and_ages_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    [id_] = write(database, [1], created_at=OLD)
    erase(database, "pets", Subject("prediction_id", id_), by="dpo")
    label(database, monkeypatch, OLD, id_)
    assert left(database) == (0, 0, 1, 1)
    assert prune(database, CUT, by="ops") == Deleted(labels=1, receipts=1)


def test_what_is_erased_is_in_no_file_any_more(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/state.db")
    write(database, range(200), references=[f"secret-{row:03d}" for row in range(200)])
    label(database, monkeypatch, OLD, "secret-007", "secret-pending")
    for name in ("secret-007", "secret-pending"):
        erase(database, "pets", Subject("reference", name), by="dpo")
    whole = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"secret-008" in whole
    assert b"secret-007" not in whole
    assert b"secret-pending" not in whole
    database.close()


def test_a_writer_waits_for_one_slice_of_a_prune(
    tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite, which has one writer: counted in transactions, however long one takes."""
    monkeypatch.setattr("service.state.retention.ROWS_PER_TRANSACTION", 5)
    shutil.copy(migrated, tmp_path / "state.db")
    state = Database.open(f"sqlite:///{tmp_path}/state.db")
    log = PredictionLog(state)
    log.append(batch([prediction_id(row) for row in range(200)]))
    log.close()
    slices: list[int] = []
    seen: list[int] = []
    slice_runs, may_end = threading.Event(), threading.Event()

    def write_one() -> None:
        with state.begin():
            seen.append(len(slices))

    real = retention.delete_predictions

    def sliced(*given: Any, **named: Any) -> Any:
        slice_runs.set()
        assert may_end.wait(30)
        slices.append(len(given[2]))
        return real(*given, **named)

    monkeypatch.setattr(retention, "delete_predictions", sliced)
    with ThreadPoolExecutor(4) as pool:
        pruned = pool.submit(prune, state, 2_000, by="ops")
        assert slice_runs.wait(30)
        writers = [pool.submit(write_one) for _ in range(3)]
        while len(state._turn._waiting) < 4:  # type: ignore[union-attr]  # the slice and three writers
            threading.Event().wait(0.001)
        may_end.set()
        assert pruned.result(60).predictions == 200
        for writer in writers:
            writer.result(30)
    assert slices == [5] * 40 + [0]
    assert seen == [1, 1, 1]
    state.close()
