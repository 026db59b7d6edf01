"""Measure how the cost of fits, predictions and metrics grows with the number of rows.

Times each on 10⁴ … 10⁷ rows of 2 and 10 classes (float32 logits, one thread) and prints nanoseconds of CPU time per
entry of the matrix: equal numbers along a line mean that cost grows linearly in N × K. Short runs are repeated, and the
fastest counts.

    OMP_NUM_THREADS=1 python benchmarks/growth.py
    OMP_NUM_THREADS=1 python benchmarks/growth.py --largest 6 --only temperature
    OMP_NUM_THREADS=1 python benchmarks/growth.py --wide
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
FITS = ("temperature", "vector", "structured_vector", "platt", "beta", "isotonic", "histogram")
METRICS = ("expected_calibration_error", "smooth_calibration_error")
TEMPERATURE = 1.5
SECONDS = 1.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--largest", type=int, default=7, help="logarithm to base 10 of the largest number of rows")
    options.add_argument("--only", default="", help="part of the names, such as temperature")
    options.add_argument("--wide", action="store_true", help="predictions of one-vs-rest curves of 1,000 classes only")
    arguments = options.parse_args()
    if arguments.wide:
        wide()
        return
    sizes = [10**power for power in range(4, arguments.largest + 1)]
    names = [name for name in (*FITS, "predict", *METRICS) if arguments.only in name]
    print("Nanoseconds of CPU time per entry\n")
    print(
        "| what | classes | "
        + " | ".join(f"{rows:,} rows" for rows in sizes)
        + " |\n"
        + "|---" * (2 + len(sizes))
        + "|"
    )
    for classes in (2, 10):
        logits, labels = draw(sizes[-1], classes)
        for name in names:
            print(f"| {name} | {classes} |", end="", flush=True)
            for rows in sizes:
                seconds = fastest(job(name, logits[:rows], labels[:rows]))
                print(f" {1e9 * seconds / (rows * classes):.1f} |", end="", flush=True)
            print()


def wide() -> None:
    """Print the cost of predictions with a curve per class, fitted on 25,000 rows."""
    from calibrators import CALIBRATORS

    logits, labels = draw(25_000, 1_000)
    for name in ("platt", "beta", "isotonic", "centred_isotonic", "venn_abers"):
        fitted, out = CALIBRATORS[name]().fit(logits, labels), np.empty_like(logits)
        seconds = fastest(lambda fitted=fitted, out=out: fitted.predict_proba(logits, out=out))
        print(f"| {name} | {1e9 * seconds / logits.size:.1f} |", flush=True)


def draw(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logits with true probabilities softmax(logits / 1.5), and labels, a million rows at a time."""
    rng = np.random.default_rng(0)
    logits, labels = np.empty((rows, classes), np.float32), np.empty(rows, np.int64)
    for start in range(0, rows, 1_000_000):
        part = logits[start : start + 1_000_000]
        part[:] = rng.normal(0, 3, part.shape)
        labels[start : start + len(part)] = np.argmax(part / TEMPERATURE + rng.gumbel(size=part.shape), axis=1)
    return logits, labels


def job(name: str, logits: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    """Return the functions to time."""
    from calibrators import CALIBRATORS, Temperature, metrics, softmax

    if name in FITS:
        return lambda: CALIBRATORS[name]().fit(logits, labels)
    if name == "predict":
        fitted, out = Temperature().fit(logits[:10_000], labels[:10_000]), np.empty_like(logits)
        return lambda: fitted.predict_proba(logits, out=out)
    probabilities = softmax(logits)
    return lambda: getattr(metrics, name)(probabilities, labels)


def fastest(timed: Callable[[], object]) -> float:
    """Return the seconds of the fastest call, or of a single call if it is long."""
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        start = time.process_time()
        timed()
        best = min(best, time.process_time() - start)
    return best


if __name__ == "__main__":
    main()
