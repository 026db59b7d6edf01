"""Measure the state database: the prediction log's sustained rate, feedback, and reads of labelled rows.

    python -m benchmarks.state [--url postgresql://…] [--rows 1000000] [--classes 2]

Without a URL it measures SQLite in a temporary folder. A PostgreSQL database must be empty; its rows stay. Prints one
JSON document.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from service.state.database import Database
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.labelled import load_labelled_rows
from service.state.prediction_rows import PredictionBatch
from service.state.predictions import PredictionLog
from service.state.window import Window

DIGEST = "0" * 64
LABELS = ("allow", "fraud", "review", "other", "a", "b", "c", "d", "e", "f")
REQUEST_ROWS = 32
FEEDBACK_ROWS = 10_000


def prediction_ids(rows: int) -> list[str]:
    """Return ids that sort like ULIDs of successive milliseconds."""
    return [f"01J{row:023d}" for row in range(rows)]


def batches(ids: list[str], classes: int) -> Iterator[PredictionBatch]:
    """Yield requests of 32 tabular rows with 30 features, every second row with a group."""
    random = np.random.default_rng(7)
    for start in range(0, len(ids), REQUEST_ROWS):
        names = ids[start : start + REQUEST_ROWS]
        n = len(names)
        logits = random.standard_normal((n, classes), dtype=np.float32)
        yield PredictionBatch(
            model="fraud",
            model_digest=DIGEST,
            revision="r1",
            policy="card@1",
            created_at=1_700_000_000_000_000 + start,
            ids=names,
            references=[random.bytes(8).hex() for _ in range(n)],
            groups=[f"card-{(start + row) % 5000}" if row % 2 else None for row in range(n)],
            inputs=random.standard_normal((n, 30), dtype=np.float32),
            logits=logits,
            labels=logits.argmax(axis=1),
            confidence=logits.max(axis=1),
            actions=["allow"] * n,
            propensities=[0.01] * n,
            sought=[row == 0 for row in range(n)],
        )


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds and the result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def fill_log(database: Database, ids: list[str], classes: int) -> dict[str, Any]:
    """Queue batches as fast as possible, and wait until all are durable."""
    log = PredictionLog(database)
    made = list(batches(ids, classes))

    def write() -> None:
        for batch in made:
            while log.depth > 50_000:
                time.sleep(0.005)
            log.append(batch)
        log.flush(600)

    seconds, _ = timed(write)
    log.close()
    return {"rows": log.written, "dropped": log.dropped, "seconds": seconds, "rows_per_s": log.written / seconds}


def give_feedback(database: Database, ids: list[str]) -> dict[str, Any]:
    """Label every prediction by id, in requests of 10,000."""
    store = FeedbackStore(database)

    def write() -> None:
        for start in range(0, len(ids), FEEDBACK_ROWS):
            names = ids[start : start + FEEDBACK_ROWS]
            items = [FeedbackItem(name, None, LABELS[row % 2], "reviewer") for row, name in enumerate(names)]
            store.add("fraud", items, by="bench")

    seconds, _ = timed(write)
    return {"seconds": seconds, "rows_per_s": len(ids) / seconds}


def main() -> None:
    """Run all three and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(options.url or f"sqlite:///{Path(folder)}/state.db")
        ids = prediction_ids(options.rows)
        log = fill_log(database, ids, options.classes)
        feedback = give_feedback(database, ids)
        names = LABELS[: options.classes]
        with database.connect() as connection:
            window = Window("fraud", DIGEST)
            seconds, found = timed(lambda: load_labelled_rows(connection, window, label_names=names))
        report = {
            "database": database.engine.dialect.name,
            "machine": f"{platform.machine()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
            "log": log,
            "feedback": feedback,
            "labelled_rows": {"rows": len(found.rows), "seconds": seconds},
            "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
        database.close()
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
