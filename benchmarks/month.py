"""Measure a month of predictions on PostgreSQL: look-ups and their plans, single labels, and what reads many rows.

    python -m benchmarks.month --url postgresql://… [--rows 100000000]

Fills an empty database by COPY first (23 minutes for 100 million rows); with rows in it, it only measures. Each
line has elapsed milliseconds (median and 99th percentile), and the processor time of this process and of all of
PostgreSQL's, per repetition (Linux; PostgreSQL on this machine, and nothing else using it).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
from sqlalchemy import delete, select

from benchmarks.bulk import fill_month, reference_of
from service.state.database import Database, now_us
from service.state.expiry import drop_before
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.label_times import label_times
from service.state.partitions import DAY_US, parts_of, time_of_id
from service.state.recent import load_recent_rows
from service.state.tables import challenger_scores, origins, predictions
from service.state.window import Window
from service.state.window_rows import load_window_rows

MODEL: Final = "fraud"
DIGEST: Final = "0" * 64
LABELS: Final = ("0", "1")
LOOK_UPS: Final = 500


def main() -> None:
    """Fill the database if it is empty, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--drop", action="store_true", help="at the end, drop the oldest day with a million scores")
    options = parser.parse_args()
    database = Database.open(options.url)
    with database.connect() as connection:
        filled = connection.execute(select(origins.c.id).limit(1)).first() is not None
    if not filled:
        measure(
            "filling, per million rows",
            1,
            lambda: fill_month(database, MODEL, DIGEST, options.rows),
            options.rows / 1e6,
        )
    print("| what | n | median ms | 99 % ms | CPU here ms | CPU of PostgreSQL ms |\n|---|---|---|---|---|---|")
    look_ups(database, options.rows)
    reader = Database.open(options.url, readonly=True)  # as a recalibration's process does
    reads(reader)
    reader.close()
    if options.drop:
        drop(database)
    database.close()


def look_ups(database: Database, rows: int) -> None:
    """Measure predictions and single labels by id and by reference, and print the plans."""
    numbers = np.random.default_rng(5).integers(rows, size=4 * LOOK_UPS)
    names = [name.decode() for name in reference_of(numbers)]
    with database.connect() as connection:
        named = select(predictions.c.id).where(predictions.c.reference == names[0])
        some = select(predictions.c.id).where(predictions.c.reference.in_(names[: 2 * LOOK_UPS]))
        ids = list(connection.scalars(some))
        by_id = select(predictions.c.cluster).where(predictions.c.id == ids[0])
        for query in (by_id, named):
            sql = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
            print(*connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS) {sql}").scalars(), sep="\n", end="\n\n")
        found, unnamed = iter(ids), iter(names)
        measure("prediction by id", LOOK_UPS, lambda: _one(connection, predictions.c.id == next(found)))
        measure("prediction by reference", LOOK_UPS, lambda: _one(connection, predictions.c.reference == next(unnamed)))
    store, place = FeedbackStore(database), count()

    def label(by_reference: bool) -> None:
        number = 2 * LOOK_UPS + next(place) % LOOK_UPS
        name = (None, names[number]) if by_reference else (ids[number % len(ids)], None)
        store.add(MODEL, [FeedbackItem(*name, LABELS[1], "benchmark")], by="benchmark")

    measure("single label by id", LOOK_UPS, lambda: label(False))
    measure("single label by reference", LOOK_UPS, lambda: label(True))


def reads(database: Database) -> None:
    """Measure what recalibrations, drift, delays of labels and the page of a model read."""
    for days in (1, 7, None):
        window = Window(MODEL, DIGEST, None if days is None else now_us() - days * DAY_US)
        name = "all" if days is None else f"{days} days"
        measure(f"rows of a recalibration, {name}", 1, lambda window=window: _window(database, window))
    measure("newest 50,000 rows (drift, simulation)", 1, lambda: _recent(database))
    measure("delays of 100,000 labels", 1, lambda: _delays(database))


def drop(database: Database) -> None:
    """Measure dropping the oldest day, with a million scores of challengers on its predictions."""
    with database.connect() as connection:
        oldest = parts_of(connection, predictions.name)[0]
    own = (challenger_scores.c.id >= oldest.since, challenger_scores.c.id < oldest.until)
    copied = (
        "INSERT INTO challenger_scores SELECT id, 1, created_at, logits FROM predictions "
        f"WHERE id >= '{oldest.since}' AND id < '{oldest.until}' LIMIT 1000000"
    )
    for name, statement in (("writing", copied), ("deleting", delete(challenger_scores).where(*own))):

        def run(statement: Any = statement) -> None:
            with database.begin() as connection:
                if isinstance(statement, str):
                    connection.exec_driver_sql(statement)
                else:
                    connection.execute(statement)

        measure(f"{name} up to a million scores of challengers", 1, run)
    before = time_of_id(oldest.until)
    measure("dropping the oldest day", 1, lambda: drop_before(database, before, None, lambda: False))


def measure(what: str, times: int, work: Callable[[], object], units: float = 1.0) -> None:
    """Run work some times and print a row."""
    took = np.empty(times)
    here, there = time.process_time(), _of_postgresql()
    for place in range(times):
        began = time.perf_counter()
        work()
        took[place] = time.perf_counter() - began
    here, there = (1e3 * spent / times / units for spent in (time.process_time() - here, _of_postgresql() - there))
    median, most = 1e3 * np.quantile(took, (0.5, 0.99)) / units
    print(f"| {what} | {times} | {median:.2f} | {most:.2f} | {here:.2f} | {there:.2f} |", flush=True)


def _one(connection: Any, condition: Any) -> None:
    connection.execute(select(predictions.c.cluster).where(condition)).all()


def _window(database: Database, window: Window) -> None:
    with database.connect() as connection:
        load_window_rows(connection, window, label_names=LABELS, at_most=1_000_000)


def _recent(database: Database) -> None:
    with database.connect() as connection:
        load_recent_rows(connection, Window(MODEL, DIGEST), label_names=LABELS, at_most=50_000)


def _delays(database: Database) -> None:
    with database.connect() as connection:
        label_times(connection, MODEL, at_most=100_000)


def _of_postgresql() -> float:
    """Return the processor time of PostgreSQL's processes on this machine, and of their ended children, in seconds."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = file.read_text().partition(") ")
        except OSError:  # it has ended
            continue
        if name.endswith("(postgres"):
            ticks += sum(map(int, rest.split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
