"""A process of one package: measure the fastest of several calls, and check the answer.

Run as `python -m benchmarks.side_by_side.worker PACKAGE ROW VARIANT FOLDER SECONDS CLOCK` in the package's environment.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.packages import PACKAGES
from benchmarks.packages.job import Job, Labels, label_probabilities
from benchmarks.side_by_side.data_sets import read

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}


def main() -> None:
    package, row, variant, folder, seconds, clock = sys.argv[1:]
    warnings.simplefilter("ignore")
    name, data = row.split("/")
    logits, labels = read(Path(folder), data)
    job = PACKAGES[package].variants(name, data)[variant](logits, labels)
    milliseconds, result = fastest(job, float(seconds), CLOCKS[clock])
    said = {"nll": None, "value": None} | judge(job, result, labels)
    print(json.dumps({"milliseconds": milliseconds, "other": job.other, **said}))


def fastest(job: Job, seconds: float, clock: Callable[[], float]) -> tuple[float, Any]:
    """Call for some seconds, at least three times if calls are short; the first ones warm up."""
    best, began, calls = math.inf, time.perf_counter(), 0
    while True:
        start = clock()
        result = job.call()
        best = min(best, clock() - start)
        calls += 1
        if time.perf_counter() - began > (seconds if calls >= 3 else 5 * seconds):
            return best * 1e3, result


def judge(job: Job, result: Any, labels: Labels) -> dict[str, float]:
    answer = result if job.read is None else job.read(result)
    if np.ndim(answer) == 0:
        return {"value": float(answer)}
    own = label_probabilities(answer, labels[: len(answer)])
    return {"nll": float(-np.mean(np.log(np.maximum(own, 1e-300))))}


if __name__ == "__main__":
    main()
