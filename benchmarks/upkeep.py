"""Measure what runs beside the service on SQLite: the log sink, the first read after many labels, and retention.

    python -m benchmarks.upkeep [--rows 500000]

Single labels are posted to the store meanwhile, one after the other: what they wait is what a client would.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.state import DIGEST, LABELS, fill_log, give_feedback, prediction_ids, timed
from service.ids import new_ids
from service.state.database import Database, now_us
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.log_sink import LogSink
from service.state.retention import prune
from service.state.window import Window
from service.state.window_rows import load_window_rows

ALONE_S = 10.0


def main() -> None:
    """Fill a database with old rows, run each kind of upkeep, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(f"sqlite:///{folder}/state.db")
        ids = prediction_ids(options.rows)
        fill_log(database, ids, 2)
        young = new_ids(200_000)
        fill_log(database, young, 2)
        names = itertools.cycle(young)
        beside(database, names, f"labels alone, {ALONE_S:g} s", lambda: time.sleep(ALONE_S))
        give_feedback(database, ids[::4])
        reader = Database.open(f"sqlite:///{folder}/state.db", readonly=True)
        with reader.connect() as connection:
            window = Window("fraud", DIGEST)
            seconds, found = timed(
                lambda: load_window_rows(connection, window, label_names=LABELS[:2], at_most=1_000_000)
            )
        reader.close()
        print(f"first read after {len(ids[::4]):,} labels at once: {len(found.rows):,} rows in {seconds:.1f} s")
        sink = LogSink(database, f"{folder}/sink", Path(folder))
        seconds = beside(database, names, "labels beside the log sink", sink.run)
        print(f"log sink: {sink.written:,} rows, {sink.written / seconds:,.0f} rows/s")
        before_us = now_us() - 86_400_000_000
        seconds = beside(database, names, "labels beside retention", lambda: prune(database, before_us, by="benchmark"))
        print(f"retention: {options.rows:,} rows with {len(ids[::4]):,} labels, {options.rows / seconds:,.0f} rows/s")
        database.close()


def beside(database: Database, names: Any, what: str, work: Callable[[], object]) -> float:
    """Run something, post single labels until it ends, print how long they took, and return its seconds."""
    store, took = FeedbackStore(database), list[float]()
    ended = threading.Event()

    def post() -> None:
        while not ended.is_set():
            item = FeedbackItem(next(names), None, LABELS[1], "reviewer")
            took.append(timed(partial(store.add, "fraud", [item], by="benchmark"))[0])

    client = threading.Thread(target=post)
    client.start()
    seconds, _ = timed(work)
    ended.set()
    client.join()
    median, most, longest = 1e3 * np.quantile(took, (0.5, 0.99, 1.0))
    print(f"{what}: {len(took):,} of them, median {median:.1f} ms, 99 % {most:.1f} ms, longest {longest:.0f} ms")
    return seconds


if __name__ == "__main__":
    main()
