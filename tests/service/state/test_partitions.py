"""PostgreSQL's partitions: rows find theirs, old ones go whole, and a table of before becomes one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import Connection, func, select, text

from service.ids import ids_of
from service.state import partitions
from service.state.database import Database, now_us
from service.state.deletion import Deleted
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.partitions import cover, parts_of
from service.state.predictions import PredictionLog
from service.state.retention import Retention, prune
from service.state.tables import feedback, inputs, predictions
from service.times import DAY_US

from .conftest import batch, drop_tables
from .test_migrations import open_at

TODAY_US = now_us() // DAY_US * DAY_US


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    drop_tables(postgres_url)
    opened = Database.open(postgres_url)
    yield opened
    opened.close()
    drop_tables(postgres_url)


def ids_at(days_ago: int, count: int = 3) -> list[str]:
    at = TODAY_US - days_ago * DAY_US + 3_600_000_000
    return ids_of(at // 1000, b"".join(row.to_bytes(10) for row in range(count)))


def write(database: Database, days_ago: int, **changes: Any) -> list[str]:
    ids = ids_at(days_ago)
    log = PredictionLog(database, keep_inputs="all")
    at = TODAY_US - days_ago * DAY_US + 3_600_000_500
    assert log.append(batch(ids, **{"created_at": at} | changes))
    log.close()
    assert (log.written, log.dropped) == (3, 0)
    return ids


def ask(database: Database, query: Any) -> Any:
    with database.connect() as connection:
        return connection.execute(query).scalar_one()


def count(database: Database, *tables: Any) -> list[int]:
    return [ask(database, select(func.count()).select_from(table)) for table in tables]


def names(database: Database, table: str = "predictions") -> list[str]:
    with database.connect() as connection:
        return [part.name for part in parts_of(connection, table)]


def tables(database: Database) -> int:
    return int(
        ask(database, text("SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '_(before|[0-9]{8})$'"))
    )


def only_spans(database: Database) -> None:
    """Drop the partition of everything before, which is larger than a day."""
    with database.begin() as connection:
        connection.exec_driver_sql("DROP TABLE predictions_before, inputs_before")


def test_old_days_are_dropped_with_the_labels_that_are_theirs_alone(database: Database) -> None:
    only_spans(database)
    oldest = write(database, 40, references=["a", "both", None])
    old = write(database, 35, references=["b", None, "both"])
    new = write(database, 2, references=["c", "both", None])
    items = [FeedbackItem(id_, None, "cat") for id_ in (oldest[0], old[1], new[2])]
    items += [FeedbackItem(None, name, "cat") for name in ("a", "b", "both", "c", "never")]
    FeedbackStore(database).add("pets", items, by="till")
    FeedbackStore(database).add("cars", [FeedbackItem(None, "a", "cat")], by="till")
    life = Retention(database, days=30, inputs_days=None)
    life.run()
    assert life.deleted == Deleted(predictions=6, inputs=6, labels=4)
    assert count(database, predictions, inputs) == [3, 3]
    with database.connect() as connection:
        kept = sorted(map(tuple, connection.execute(select(feedback.c.model, feedback.c.target))))
    assert kept == sorted([("pets", new[2]), ("pets", "both"), ("pets", "c"), ("pets", "never"), ("cars", "a")])
    assert tables(database) == 2 * len(names(database)) == 2 * (1 + 4)  # day −2, today and three ahead
    life.run()
    assert life.deleted.predictions == 6


def test_a_day_goes_when_the_last_of_its_rows_is_too_old(database: Database) -> None:
    only_spans(database)
    write(database, 31)
    write(database, 30)
    life = Retention(database, days=30, inputs_days=29)
    life.run()
    assert life.deleted == Deleted(predictions=3, inputs=6)
    assert count(database, predictions, inputs) == [3, 0]


def test_a_partition_with_a_younger_row_loses_the_others_one_by_one(database: Database) -> None:
    only_spans(database)
    write(database, 40)
    log = PredictionLog(database, keep_inputs="all")
    log.append(batch([ids_at(40, 4)[3]], created_at=TODAY_US))
    log.close()
    assert prune(database, TODAY_US - 30 * DAY_US, by="ops") == Deleted(predictions=3, inputs=3)
    assert count(database, predictions, inputs) == [1, 1]


def test_a_drop_that_a_reader_or_a_crash_interrupts_is_completed(database: Database, postgres_url: str) -> None:
    only_spans(database)
    write(database, 40)
    write(database, 39)
    detached, waiting = names(database)
    with psycopg.connect(postgres_url) as reader, psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(f"ALTER TABLE predictions DETACH PARTITION {detached} CONCURRENTLY")
        reader.execute("SELECT count(*) FROM predictions")
        other.execute("SET lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            other.execute(f"ALTER TABLE predictions DETACH PARTITION {waiting} CONCURRENTLY")
    write(database, 0)
    prune(database, TODAY_US - 30 * DAY_US, by="ops")
    assert tables(database) == 2
    assert count(database, predictions, inputs) == [3, 3]


def test_a_writer_makes_the_partitions_that_its_rows_lack(database: Database) -> None:
    there = names(database)
    ids = [*ids_at(-20, 40), *ids_at(-21, 40)]
    log = PredictionLog(database, keep_inputs="all")
    log.append(batch(ids))
    log.close()
    log = PredictionLog(database, keep_inputs="all")
    log.append(batch([*ids, *ids_at(-22, 40)]))  # days that are there, and rows that are, too
    log.close()
    assert log.dropped == 0
    assert count(database, predictions, inputs) == [120, 120]
    assert len(names(database)) == len(names(database, "inputs")) == len(there) + 3


def test_writers_that_lack_the_same_partition_wait_for_one(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Barrier(2, timeout=30)
    real = partitions.cover

    def together(connection: Connection, days: Any) -> list[str]:
        started.wait()
        return real(connection, days)

    monkeypatch.setattr("service.state.prediction_rows.cover", together)
    logs = [PredictionLog(database) for _ in range(2)]
    for log, id_ in zip(logs, ids_at(-20, 2), strict=True):
        log.append(batch([id_]))
    for log in logs:
        log.close(30)
    assert [(log.written, log.dropped) for log in logs] == [(1, 0)] * 2


def test_queries_by_id_read_one_partition(database: Database) -> None:
    with database.begin() as connection:
        cover(connection, range(TODAY_US // DAY_US, TODAY_US // DAY_US + 20))
        query = select(predictions.c.cluster).where(predictions.c.id.in_(ids_at(-3)))
        sql = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
        plan = " ".join(connection.exec_driver_sql(f"EXPLAIN {sql}").scalars())
    assert plan.count("Scan") - plan.count("Bitmap Heap Scan") == 1


def test_a_table_of_before_becomes_a_partition_and_keeps_rows_and_indexes(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_tables(postgres_url)
    old = open_at(postgres_url, "0011", monkeypatch)
    row = "INSERT INTO predictions VALUES (:id, 1, 5, 'tx', 7, '', 1, 0.5, 'review', 1.0, true)"
    with old.begin() as connection:
        connection.execute(text("INSERT INTO origins (model, model_digest, revision, policy) VALUES ('pets','','','')"))
        connection.execute(text(row), [{"id": id_} for id_ in ids_at(3)])
    files = text("SELECT array_agg(pg_relation_filenode(c::regclass)) FROM unnest(CAST(:names AS text[])) c")
    indexes = ["predictions{}", "predictions{}_pkey", "predictions{}_by_time", "predictions{}_by_reference"]

    def stored(database: Database, part: str) -> Any:
        with database.connect() as connection:
            return connection.execute(files, {"names": [name.format(part) for name in indexes]}).scalar_one()

    before = stored(old, "")
    with psycopg.connect(postgres_url) as first_try:  # one that was killed
        first_try.execute("ALTER TABLE inputs ADD CONSTRAINT inputs_before_ids CHECK (id < '0') NOT VALID")
    database = Database.open(postgres_url)
    assert stored(database, "_before") == before
    with old.begin() as connection:  # a replica of the version before
        connection.execute(text(row + " ON CONFLICT DO NOTHING"), [{"id": id_} for id_ in ids_at(0) + ids_at(3)])
    old.close()
    assert count(database, predictions) == [6]
    assert ask(database, text("SELECT count(*) FROM pg_constraint WHERE conname LIKE '%before_ids'")) == 0
    write(database, 0)
    assert names(database) == ["predictions_before"]
    write(database, -9)
    assert len(names(database)) == 2
    assert prune(database, TODAY_US, by="ops").predictions == 6
    database.close()
    drop_tables(postgres_url)
