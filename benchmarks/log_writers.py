"""Measure one log writer against several: what a row costs them, and how long another write waits for them.

    python -m benchmarks.log_writers [--url postgresql://…] [--writers 4] [--rate 2048] [--seconds 20]

Without a URL the state is SQLite in a temporary folder; a PostgreSQL database must be empty, and its rows stay. Each
writer is a process with a prediction log, as a worker has it; all together they get `--rate` rows per second, in
batches of 32. Beside them a process writes one label 20 times a second. On SQLite, several writers are measured as they
are, taking turns with longer intervals, and with SQLite's own waiting (decision 22). Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.state import REQUEST_ROWS, batches
from service.ids import new_ids
from service.runtime import LOG_INTERVAL_S, LONGEST_LOG_INTERVAL_S
from service.state.database import Database, lock_server
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.predictions import PredictionLog

_LABELS_PER_S: Final = 20


def opened(url: str, *, turns: bool) -> Database:
    """Open the state as a worker does, or so that SQLite alone lets processes wait."""
    return Database.open(url, lock_is_held=True) if turns else Database.open(url, beside_server=True, existing=True)


def write(rate: float, *, url: str, turns: bool, interval_s: float, seconds: float) -> tuple[int, float]:
    """Log rows at a rate; return how many became durable, and the processor time in seconds."""
    database = opened(url, turns=turns)
    made = list(batches(new_ids(round(rate * seconds)), 2))
    log = PredictionLog(database, commit_interval_s=interval_s)
    began, before_s = time.monotonic(), time.process_time()
    for number, batch in enumerate(made):
        _until(began + number * REQUEST_ROWS / rate)
        log.append(batch)
    log.flush()
    found = log.written, time.process_time() - before_s
    log.close()
    database.close()
    return found


def wait(_: float, *, url: str, turns: bool, seconds: float) -> list[float]:
    """Write labels one by one; return how long each took, in seconds."""
    database = opened(url, turns=turns)
    store = FeedbackStore(database)
    took, began = [], time.monotonic()
    for number in range(round(_LABELS_PER_S * seconds)):
        _until(began + number / _LABELS_PER_S)
        start = time.perf_counter()
        store.add("other", [FeedbackItem(None, f"r-{number}", "1", "bench")], by="bench")
        took.append(time.perf_counter() - start)
    database.close()
    return took


def _until(at: float) -> None:
    if (left := at - time.monotonic()) > 0:
        time.sleep(left)


def measure(url: str, options: argparse.Namespace, writers: int, interval_s: float, *, turns: bool) -> str:
    """Return the cells of a row of the table."""
    given: dict[str, Any] = {"url": url, "turns": turns, "seconds": options.seconds}
    writing: Callable[[float], tuple[int, float]] = partial(write, interval_s=interval_s, **given)
    with multiprocessing.get_context("spawn").Pool(writers + 1) as pool:
        waits = pool.map_async(partial(wait, **given), [0.0])
        found = pool.map(writing, [options.rate / writers] * writers, chunksize=1)
        took = sorted(waits.get()[0])
    rows, used_s = (sum(column) for column in zip(*found, strict=True))
    p50, p99 = (1e3 * took[len(took) * share // 100] for share in (50, 99))
    return f"{1e5 * used_s / rows:.2f} | {p50:.1f} | {p99:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2048.0, help="rows per second of all writers together")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    many, longer = options.writers, min(LOG_INTERVAL_S * options.writers, LONGEST_LOG_INTERVAL_S)
    with tempfile.TemporaryDirectory() as folder:
        url = options.url or f"sqlite:///{Path(folder)}/state.db"
        lock = lock_server(url)
        Database.open(url, lock_is_held=True).close()
        sqlite = lock is not None
        together = f"{many} writers, turns" if sqlite else f"{many} writers"
        cases = [("one writer", 1, LOG_INTERVAL_S, True), (together, many, longer, True)]
        if sqlite:
            cases.insert(1, (f"{many} writers, SQLite's waiting", many, LOG_INTERVAL_S, False))
        print("| | processor seconds per 100,000 rows | another write takes, median, ms | p99, ms |\n|---|---|---|---|")
        for name, writers, interval_s, turns in cases:
            cells = measure(url, options, writers, interval_s, turns=turns)
            print(f"| {name}, {interval_s:g} s | {cells} |", flush=True)
        if lock is not None:
            lock.release()


if __name__ == "__main__":
    main()
