"""Measure calibrators with a curve for each class on the rows of one request: curves together, and class by class.

    python -m benchmarks.few_rows [--classes 10 100 1000] [--rows 1 32]

Prints microseconds for a call of `predict_proba`, the fastest of all turns; the two ways take turns in one process.
"""

from __future__ import annotations

import argparse
import timeit

import numpy as np

from calibrators import CALIBRATORS
from calibrators.methods import one_vs_rest

METHODS = ("isotonic", "centred_isotonic", "venn_abers", "bbq", "enir")
TURNS, SECONDS = 9, 0.05


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000])
    options.add_argument("--rows", type=int, nargs="+", default=[1, 32])
    options.add_argument("--fitted", type=int, default=5000, help="rows of the fit")
    given, few = options.parse_args(), one_vs_rest.FEW_ROWS
    print("| method | classes | rows | together | class by class | ratio |\n|---|---|---|---|---|---|", flush=True)
    for classes in given.classes:
        draw = np.random.default_rng(0)
        logits = draw.normal(scale=3, size=(given.fitted, classes)).astype(np.float32)
        labels = (logits + draw.gumbel(size=logits.shape)).argmax(axis=1)
        for method in METHODS:
            calibrator = CALIBRATORS[method]().fit(logits, labels)
            for rows in given.rows:
                some = logits[:rows].copy()
                timer = timeit.Timer(lambda calibrator=calibrator, some=some: calibrator.predict_proba(some))
                together, alone = np.inf, np.inf
                for _ in range(TURNS):
                    one_vs_rest.FEW_ROWS = few
                    together = min(together, fastest(timer))
                    one_vs_rest.FEW_ROWS = 0
                    alone = min(alone, fastest(timer))
                cells = f"`{method}` | {classes:,} | {rows} | {1e6 * together:,.0f} | {1e6 * alone:,.0f}"
                print(f"| {cells} | {alone / together:.1f}× |", flush=True)


def fastest(timer: timeit.Timer) -> float:
    """Return the seconds of a call, in a turn of about `SECONDS`."""
    count = max(1, round(SECONDS / timer.timeit(1)))
    return timer.timeit(count) / count


if __name__ == "__main__":
    main()
