"""Measure the memory of training on tables and texts, against the size of the data.

Writes tables of 50 columns, 8 of them categories, and for `text_cnn` texts of 100 words, as Parquet or CSV; trains on
each in a process of its own and reports the peak of its anonymous memory (`RssAnon`: what the system cannot take back;
pages of the temporary files it can), that before the reading, and the time. Trees grow until the validation loss no
longer falls; networks of tables see all rows once, those of texts 20,000. Everything is removed afterwards.

    python -m benchmarks.large_data --folder /var/tmp [--rows 500000 2000000] [--models lightgbm xgboost text_cnn]

Linux only. Parquet needs pyarrow to be written and the extra `parquet` to be read.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS, CATEGORIES, PART = 42, 8, 100_000
WORDS, DIFFERENT = 100, 300_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True, help="folder for the data and temporary files")
    options.add_argument("--rows", type=int, nargs="+", default=[500_000, 2_000_000])
    options.add_argument("--models", nargs="+", default=["lightgbm"])
    options.add_argument("--formats", nargs="+", default=["parquet"], choices=["parquet", "csv"])
    options.add_argument("--run", nargs=2, metavar=("FILE", "MODEL"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.run:
        print(json.dumps(run(Path(given.run[0]), given.run[1])))
        return
    print("| rows | MB | | model | before, MB | peak, MB | seconds |\n|---|---|---|---|---|---|---|", flush=True)
    for rows in given.rows:
        for ending in given.formats:
            for model in given.models:
                with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                    file = Path(folder) / f"large.{ending}"
                    size = write(file, rows, texts if model == "text_cnn" else table) / 1e6
                    command = [sys.executable, "-m", "benchmarks.large_data", "--folder", folder]
                    done = subprocess.run([*command, "--run", file, model], check=True, capture_output=True, text=True)
                    before, peak, seconds = json.loads(done.stdout.splitlines()[-1])
                    cells = f"{rows:,} | {size:,.0f} | {ending} | `{model}` | {before:,.0f} | {peak:,.0f}"
                    print(f"| {cells} | {seconds:,.0f} |", flush=True)


def table(draw: np.random.Generator) -> tuple[dict[str, Any], int]:
    """Return numbers and categories with a label that depends on five of them, and their bytes as float32."""
    numbers = draw.normal(size=(PART, NUMBERS)).round(3).astype(np.float32)
    codes = draw.integers(0, 40, (PART, CATEGORIES))
    score = numbers[:, :4].sum(axis=1) + (codes[:, 0] < 8) + draw.normal(size=PART)
    columns: dict[str, Any] = {f"number{place}": numbers[:, place] for place in range(NUMBERS)}
    columns |= {f"kind{place}": np.char.add("k", codes[:, place].astype(str)) for place in range(CATEGORIES)}
    return columns | {"y": np.where(score > 2, "yes", "no")}, PART * (NUMBERS + CATEGORIES) * 4


def texts(draw: np.random.Generator) -> tuple[dict[str, Any], int]:
    """Return texts of words as frequent as in a language, with a label that one word decides, and their bytes."""
    words = np.char.add("word", np.arange(DIFFERENT).astype(str))
    written = [" ".join(words[row]) for row in draw.zipf(1.2, (PART, WORDS)) % DIFFERENT]
    return {"body": written, "y": ["yes" if " word9 " in text else "no" for text in written]}, sum(map(len, written))


def write(file: Path, rows: int, some: Callable[[np.random.Generator], tuple[dict[str, Any], int]]) -> int:
    """Write rows; return the bytes of their inputs in memory."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    draw, writer, size = np.random.default_rng(0), None, 0
    for start in range(0, rows, PART):
        columns, more = some(draw)
        part = pa.table(columns)[: rows - start]
        size += more * len(part) // PART
        if writer is None:
            make = parquet.ParquetWriter if file.suffix == ".parquet" else csv.CSVWriter
            writer = make(file, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()
    return size


def run(file: Path, model: str) -> tuple[float, float, float]:
    """Return the anonymous memory before the reading and at its peak, in MB, and the seconds from then on."""
    tempfile.tempdir = str(file.parent)
    from training import TrainConfig
    from training.pipeline import fit
    from training.trained import Given
    from training.trees import TREES

    if model in TREES:
        __import__(model)
    data: dict[str, Any] = {"file": file.name, "label": "y"}
    settings: dict[str, Any] = {"train_rows": 0, "epochs": 1, "batch_size": 1024, "validation_rows": 20_000}
    if model in TREES:
        settings = {"train_rows": 0, "patience": 1, "model_settings": {"learning_rate": 0.5}}
    elif model == "text_cnn":
        data |= {"text": "body", "length": WORDS}
        settings |= {"train_rows": 20_000}
    config = TrainConfig(
        dataset="texts" if model == "text_cnn" else "table", data=file.parent, data_settings=data, model=model,
        threads=1, **settings,
    )  # fmt: skip
    before = peak = anonymous()
    stop, began = threading.Event(), time.perf_counter()

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.02):
            peak = max(peak, anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    whole = config.read()
    suited, notes = config.suited(whole)
    fit(suited, Given(*suited.cut(whole), notes=notes))
    stop.set()
    watcher.join()
    return before, peak, time.perf_counter() - began


def anonymous() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1000


if __name__ == "__main__":
    main()
