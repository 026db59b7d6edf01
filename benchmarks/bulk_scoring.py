"""Measure `candor score` beside ONNX Runtime's own rate on the same rows, model and cores.

Trains boosted trees (LightGBM), imports them, and writes N rows of 20 numbers as Parquet. Then, with every core: ONNX
Runtime alone on arrays in memory, one session with a thread per core (its default) and one with a single thread, whose
CPU seconds are the least that the model can cost; and `candor score`, from file to file, with ids and decisions.
Reports rows per second, CPU seconds per million rows (which other work on the machine does not change much), and the
peak resident memory of all processes together (sampled every 50 ms). Linux only.

    python -m benchmarks.bulk_scoring --rows 10000000 --trees 300
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnxruntime as ort
from arro3.core import Array, RecordBatch, RecordBatchReader
from arro3.io import write_parquet

import bundle as bundles
from benchmarks.serving.processors import seconds_of

COLUMNS = 20
BATCH = 4_096
CHUNK = 100_000
GOAL = 0.9  # of ONNX Runtime's rate on all cores
POLICY = "{id: triage, positive: '1', bands: [{action: block, when: {min_probability: 0.9}}, {action: allow}]}"
PROGRAM = Path(sys.executable).parent / "candor"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--runtime-rows", type=int, default=500_000, help="rows of ONNX Runtime alone")
    options.add_argument("--trees", type=int, default=300)
    options.add_argument("--folder", type=Path, help="for the files: 200 bytes a row; default: a temporary folder")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        root = Path(folder)
        model = imported(root, arguments.trees)
        cores = len(os.sched_getaffinity(0))
        found = {f"onnx_runtime_{n}_threads": runtime_alone(model, arguments.runtime_rows, n) for n in (cores, 1)}
        whole = scored(root, arguments.rows)
        print(json.dumps({"cores": cores, **found, "score": whole}, indent=2))
        for name, alone in found.items():
            rate = whole["rows_per_s"] / alone["rows_per_s"]
            cpu = alone["cpu_s_per_million"] / whole["cpu_s_per_million"]
            print(f"{100 * rate:.0f} % of the rate of {name}, {100 * cpu:.0f} % by CPU seconds")
        share = whole["rows_per_s"] / found[f"onnx_runtime_{cores}_threads"]["rows_per_s"]
        verdict = "reached" if share >= GOAL else "MISSED"
        print(f"{whole['rows_per_s']:,.0f} rows/s on {cores} cores")
        print(f"{share:.0%} of ONNX Runtime's rate on all cores; goal {GOAL:.0%}: {verdict}")


def rows_of(count: int, seed: int) -> np.ndarray:
    """Return rows, float32 (N, 20)."""
    return np.random.default_rng(seed).normal(size=(count, COLUMNS)).astype(np.float32)


def imported(root: Path, trees: int) -> bundles.Bundle:
    """Train, import and verify a model, with a policy beside it."""
    names = [f"x{place}" for place in range(COLUMNS)]
    values = rows_of(40_000, 0)
    score = values[:, 0] * values[:, 1] + np.sin(values[:, 2]) + values[:, 3] - values[:, 4] ** 2 / 2
    labels = (score + np.random.default_rng(1).normal(size=len(values)) > 0).astype(int)
    data = lightgbm.Dataset(values[:30_000], labels[:30_000], feature_name=names)
    booster = lightgbm.train({"objective": "binary", "num_leaves": 31, "verbose": -1}, data, trees)
    booster.save_model(root / "model.txt")
    table = np.column_stack([values[30_000:], labels[30_000:]])
    header = ",".join([*names, "y"])
    np.savetxt(root / "rows.csv", table, delimiter=",", header=header, comments="", fmt=[*["%.6f"] * COLUMNS, "%d"])
    command = [PROGRAM, "import", "lightgbm", root / "model.txt", "--validation", root / "rows.csv", "--label", "y"]
    subprocess.run([*command, "--name", "trees", "--out", root / "bundles"], check=True, stdout=subprocess.DEVNULL)
    (root / "policies" / "trees").mkdir(parents=True)
    (root / "policies" / "trees" / "triage.yaml").write_text(POLICY)
    return bundles.verify(root / "bundles" / "trees" / "1")


def runtime_alone(model: bundles.Bundle, rows: int, threads: int) -> dict[str, float]:
    """Run ONNX Runtime on rows in memory, nothing else."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.model_bytes, options)
    graph = model.manifest.graph
    assert graph is not None
    feeds = [
        graph.feeds(chunk.view(model.manifest.input.numpy) if model.manifest.input.kind == "tensors" else chunk)
        for chunk in np.split(rows_of(rows, 2), range(BATCH, rows, BATCH))
    ]
    session.run([graph.output.name], feeds[0])
    before, began = os.times(), time.perf_counter()
    for feed in feeds:
        session.run([graph.output.name], feed)
    took = time.perf_counter() - began
    after = os.times()
    cpu_s = after.user + after.system - before.user - before.system
    return {"rows": rows, "rows_per_s": rows / took, "cpu_s_per_million": 1e6 * cpu_s / rows}


def scored(root: Path, rows: int) -> dict[str, float]:
    """Score a Parquet file with the command and watch the memory of its processes."""
    first = record_batch(0, 1)
    reader = RecordBatchReader.from_batches(first.schema, (record_batch(*each) for each in chunks(rows)))
    write_parquet(reader, root / "rows.parquet", max_row_group_size=CHUNK)
    command = [PROGRAM, "score", root / "rows.parquet", root / "scored", "--model", "trees", "--policy", "triage"]
    command += ["--bundles", root / "bundles", "--policies", root / "policies", "--json"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak, spent, done = [0.0], dict[int, float](), threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            processes = tree(process.pid)
            peak[0] = max(peak[0], sum(map(resident_mb, processes)))
            for each in processes:
                spent[each] = max(spent.get(each, 0.0), seconds_of(each))  # 0 once it has ended

    watcher = threading.Thread(target=watch)
    watcher.start()
    answer, _ = process.communicate()
    took = time.perf_counter() - began
    done.set()
    watcher.join()
    assert json.loads(answer)["rows"] == rows
    return {
        "rows": rows,
        "rows_per_s": rows / took,
        "cpu_s_per_million": 1e6 * sum(spent.values()) / rows,
        "seconds": took,
        "peak_mb": peak[0],
    }


def chunks(rows: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, CHUNK):
        yield start, min(CHUNK, rows - start)


def record_batch(start: int, count: int) -> Any:
    values = rows_of(count, 3 + start)
    columns = {f"x{place}": Array.from_numpy(np.ascontiguousarray(values[:, place])) for place in range(COLUMNS)}
    return RecordBatch.from_pydict(columns)


def tree(pid: int) -> list[int]:
    """Return a process and those below it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in tree(int(child)))]


def resident_mb(pid: int) -> float:
    """Return RssAnon + RssFile of a process, in MB; libraries that processes share count for each."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1000


if __name__ == "__main__":
    main()
