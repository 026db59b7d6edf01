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
from service.state.tables import feedback, origins, predictions

SPAN_US = 30 * 86_400 * 1_000_000
ROWS_PER_GROUP = 5
TEMPERATURE = 2.5
_CHUNK = 50_000
_PREDICTIONS = tuple(column.name for column in predictions.columns)
_FEEDBACK = tuple(column.name for column in feedback.columns)


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
                _insert(connection, table, columns, chunk[table.name])
    if database.engine.dialect.name == "postgresql":
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")  # as autovacuum does within a minute


def _insert(connection: Any, table: Any, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if connection.dialect.name != "postgresql":
        insert_new(connection, table, columns, rows)
        return
    cursor = connection.connection.cursor()
    with cursor.copy(f"COPY {table.name} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


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
            predicted.append((name, 1, at, None, group, logits, top[row], 0.75, "accept", 1.0, True, None))
            said.append((name, 0, model, start // _CHUNK, row, str(drawn.labels[row]), "reviewer", None, at + 3_600))
        said = [said[row] for row in rng.permutation(len(said))[: round(labelled * len(said))]]
        yield {"predictions": predicted, "feedback": said}
