"""Write a state with many labelled predictions quickly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.serving.model import overconfident
from bundle.split import group_hash
from service.ids import new_ids
from service.state.database import Database
from service.state.insertion import insert_new
from service.state.partitions import DAY_US, first_id
from service.state.tables import feedback, origins, predictions

_DAYS = 30
SPAN_US = 30 * 86_400 * 1_000_000
ROWS_PER_GROUP = 5
TEMPERATURE = 2.5
_CHUNK = 50_000
# By name, since further columns may be left out.
_PREDICTIONS = ("id", "origin", "created_at", "reference", "cluster", "logits", "label", "confidence", "action")
_PREDICTIONS += ("propensity", "sought")
_FEEDBACK = ("target", "by_reference", "model", "batch", "position", "label", "source", "labelled_at", "received_at")


def fill(database: Database, model: str, digest: str, *, rows: int, classes: int, labelled: float = 1.0) -> None:
    """Write predictions of the last 30 days with their labels, in groups of five.

    Args:
        database: Open and empty.
        model: Name of the model.
        digest: Digest of its file.
        rows: Number of predictions.
        classes: Number K of labels, called "0" … "K − 1".
        labelled: Share of labelled predictions.
    """
    with database.begin() as connection:
        key = {"model": model, "model_digest": digest, "revision": "r1", "policy": "default@1"}
        connection.execute(origins.insert().values(id=1, **key))
        if database.engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT setval(pg_get_serial_sequence('origins', 'id'), 1)")
    for chunk in _chunks(database, model, rows, classes, labelled):
        with database.begin() as connection:
            for table, columns in ((predictions, _PREDICTIONS), (feedback, _FEEDBACK)):
                if rows_of_table := chunk[table.name]:
                    insert_new(connection, table, columns, rows_of_table)
    if database.engine.dialect.name == "postgresql":
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")  # as autovacuum does within a minute


def fill_month(database: Database, model: str, digest: str, rows: int) -> None:
    """Write predictions of two classes in 30 partitions of PostgreSQL, the last one today's, 1 % with a label.

    References are `reference_of` the rows' numbers; every other label is by reference. COPY in binary form comes from
    numpy arrays; a partition gets its indexes when it is full. Tables are not logged, so a crash empties them.

    Args:
        database: Open and empty, on PostgreSQL.
        model: Name of the model.
        digest: Digest of its file.
        rows: Number of predictions.
    """
    today = time.time_ns() // 1000 // DAY_US
    share = -(-rows // _DAYS)
    with database.begin() as connection:
        key = {"model": model, "model_digest": digest, "revision": "r1", "policy": "default@1"}
        connection.execute(origins.insert().values(**key))
        connection.exec_driver_sql("DROP TABLE predictions_before")  # of the days that were before the tables
    for day in range(_DAYS):
        start_us = (today - _DAYS + 1 + day) * DAY_US
        name = f"predictions_{np.datetime64(start_us, 'us').astype('datetime64[D]')}".replace("-", "")
        with database.begin() as connection:
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            connection.exec_driver_sql("SET LOCAL maintenance_work_mem = '1GB'")
            connection.exec_driver_sql(f"CREATE UNLOGGED TABLE {name} (LIKE predictions)")
            driver: Any = connection.connection.driver_connection
            numbers = range(day * share, min((day + 1) * share, rows))
            labels: list[tuple[Any, ...]] = []
            names = ", ".join(_PREDICTIONS)
            sql = f"COPY {name} ({names}) FROM STDIN (FORMAT BINARY, FREEZE)"
            with driver.cursor() as cursor, cursor.copy(sql) as copy:
                copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
                for first in range(numbers.start, numbers.stop, 10 * _CHUNK):
                    number = np.arange(first, min(first + 10 * _CHUNK, numbers.stop))
                    at = start_us + (number - numbers.start) * DAY_US // share
                    record = _records(number, at)
                    copy.write(record.tobytes())
                    for row in range(0, len(number), 100):
                        by_reference = row // 100 % 2
                        target = record["reference" if by_reference else "id"][row].decode()
                        said = (model, 0, int(number[row]), "1", "reviewer", None, int(at[row]) + 3_600_000_000)
                        labels.append((target, by_reference, *said))
                copy.write(b"\xff\xff")
            insert_new(connection, feedback, _FEEDBACK, labels)
            connection.exec_driver_sql(
                f"ALTER TABLE predictions ATTACH PARTITION {name} "
                f"FOR VALUES FROM ('{first_id(start_us)}') TO ('{first_id(start_us + DAY_US)}')"
            )
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")


def reference_of(numbers: np.ndarray) -> np.ndarray:
    """Return the references of rows of `fill_month`: 16 characters that look random."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    nibbles = np.unpackbits(mixed.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1).reshape(-1, 16, 4)
    return np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles @ np.array([8, 4, 2, 1], np.uint8)].view("S16").ravel()


def _records(numbers: np.ndarray, at_us: np.ndarray) -> np.ndarray:
    """Return rows of `predictions` as COPY's binary form has them: each field after its length."""
    kinds = ("S26", ">i8", ">i8", "S16", ">i8", "S8", ">i4", ">f8", "S6", ">f8", "?")
    fields = dict(zip(_PREDICTIONS, kinds, strict=True))
    pairs = [pair for name, kind in fields.items() for pair in ((f"{name}_length", ">i4"), (name, kind))]
    record = np.zeros(len(numbers), np.dtype([("columns", ">i2"), *pairs]))
    record["columns"] = len(_PREDICTIONS)
    for name in fields:
        record[f"{name}_length"] = record.dtype[name].itemsize
    rng = np.random.default_rng(int(numbers[0]))
    id_bits = np.zeros((len(numbers), 130), np.uint8)  # as in service.ids
    value = np.empty((len(numbers), 16), np.uint8)
    value[:, :6] = (at_us // 1000).astype(">u8").view(np.uint8).reshape(-1, 8)[:, 2:]
    value[:, 6:] = rng.integers(0, 256, (len(numbers), 10), np.uint8)
    id_bits[:, 2:] = np.unpackbits(value, axis=1)
    places = id_bits.reshape(-1, 26, 5) @ np.array([16, 8, 4, 2, 1], np.uint8)
    record["id"] = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)[places].view("S26").ravel()
    record["origin"], record["created_at"], record["reference"] = 1, at_us, reference_of(numbers)
    record["cluster"] = rng.integers(-(2**63), 2**63, len(numbers))
    record["logits"] = np.frombuffer(rng.normal(0, 2, (len(numbers), 2)).astype("<f4").tobytes(), "S8")
    record["label"], record["confidence"], record["action"], record["propensity"] = 1, 0.75, b"accept", 0.01
    record["sought"] = numbers % 100 == 0
    return record


def _chunks(
    database: Database, model: str, rows: int, classes: int, labelled: float
) -> Iterator[dict[str, list[tuple[Any, ...]]]]:
    rng = np.random.default_rng(7)
    now = time.time_ns() // 1000
    ids = sorted(new_ids(rows))
    for start in range(0, rows, _CHUNK):
        names = ids[start : start + _CHUNK]
        drawn = overconfident(rng, len(names), classes, temperature=TEMPERATURE)
        top = drawn.logits.argmax(axis=1).tolist()
        width = 4 * classes
        content = drawn.logits.tobytes()
        predicted, said = [], []
        for row, name in enumerate(names):
            at = now - SPAN_US + SPAN_US * (start + row) // rows
            group = group_hash(database.secret, f"card-{(start + row) // ROWS_PER_GROUP}")
            logits = content[row * width : (row + 1) * width]
            predicted.append((name, 1, at, None, group, logits, top[row], 0.75, "accept", 1.0, True))
            said.append((name, 0, model, start // _CHUNK, row, str(drawn.labels[row]), "reviewer", None, at + 3_600))
        said = [said[row] for row in rng.permutation(len(said))[: round(labelled * len(said))]]
        yield {"predictions": predicted, "feedback": said}
