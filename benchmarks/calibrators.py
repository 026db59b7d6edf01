"""Compare the speed and results of Candor's calibrators and metrics with other packages.

    OMP_NUM_THREADS=1 python -m benchmarks.calibrators --write benchmarks/RESULTS.md

Each peer has its own virtual environment in a cache folder, created on the first run; the report lists peers that could
not be installed. All packages run in turns, each in a separate process with one thread, or `--threads`; the table shows
the fastest call of all turns.

Data sets, all float32 logits with a true temperature of 1.5: (a) 5,000 × 10, (b) 25,000 × 1,000, (c) 1,000,000 × 2 with
4 % positives. `PIP_CONSTRAINT` may hold pip to CPU builds of torch and torchvision.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.packages import PACKAGES
from benchmarks.side_by_side import data_sets, report, turns
from benchmarks.side_by_side.environments import interpreters
from benchmarks.side_by_side.rows import ROWS

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "candor-benchmarks"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.calibrators",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the peers' environments")
    parser.add_argument("--rounds", type=int, default=3, help="turns per package")
    parser.add_argument("--seconds", type=float, default=2.0, help="approximate length of a turn, s")
    parser.add_argument("--limit", type=float, default=400.0, help="maximum length of a turn, s")
    parser.add_argument(
        "--clock", choices=("wall", "processor"), default="wall", help="processor: CPU time, for a busy machine"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of each package")
    parser.add_argument("--only", action="append", default=[], help="part of a row's key, such as temperature/b")
    parser.add_argument(
        "--packages", nargs="*", choices=list(PACKAGES), default=list(PACKAGES), help="packages to compare"
    )
    parser.add_argument("--resume", type=Path, help="JSON file of finished turns: read first, then updated")
    parser.add_argument("--write", type=Path, help="Markdown file whose table is replaced")
    chosen = parser.parse_args()
    options = turns.Options(chosen.rounds, chosen.seconds, chosen.limit, chosen.clock, chosen.threads)
    rows = [row for row in ROWS if not chosen.only or any(part in row.key for part in chosen.only)]
    pythons, skipped = interpreters(chosen.cache, chosen.packages)
    cells = turns.load(chosen.resume)
    with tempfile.TemporaryDirectory() as folder:
        data_sets.write(Path(folder))
        turns.run(rows, pythons, Path(folder), options, cells, chosen.resume)
    command = " ".join(["OMP_NUM_THREADS=1 python -m benchmarks.calibrators", *sys.argv[1:]])
    part = report.table(rows, cells, pythons, skipped, options, command)
    print(part)
    if chosen.write:
        report.write(chosen.write, part)


if __name__ == "__main__":
    main()
