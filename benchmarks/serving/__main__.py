"""Compare the service with other Python servers on this machine.

    python -m benchmarks.serving --seconds 4 --rounds 3 --keep turns.json --write benchmarks/RESULTS.md

Each server runs the same ONNX model of LeNet's size, with one worker process and `--threads` threads per run of the
model; ours also calibrates, decides, logs and counts every request. Peers are measured as they come and in the fastest
mode that their documentation names; the report gives the modes. Each peer has its own virtual environment in a cache
folder, created on the first run; the report lists peers that could not be installed, did not start, or gave wrong
answers. In turns each server is started, loaded by wrk (one thread; must be installed) and stopped. Answers are
compared with ONNX Runtime's before the measurement.

The run says at its start how long it takes. An interrupted run prints what it has and continues from its `--keep`
file. `--only` names parts: closed (all servers, one image per request, 1, 16 and 64 connections), batches (32 images
per request), in-process (ONNX Runtime, calibration and decision alone), log (on and off), overload (a model of 5 ms, an
open loop at three times its capacity), eager (256 clients that never wait), workers (ours and the peers with several
worker processes each).
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path

from benchmarks.results_file import replace
from benchmarks.serving import report, turns
from benchmarks.serving.modes import MODES
from benchmarks.side_by_side.environments import NotInstalledError, interpreter

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "candor-benchmarks"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the peers' environments")
    parser.add_argument("--rounds", type=int, default=3, help="turns per server; the report shows medians")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a turn, whole seconds")
    parser.add_argument("--only", nargs="*", choices=turns.PARTS, default=turns.PARTS, help="parts of the benchmark")
    parser.add_argument("--peers", nargs="*", choices=list(MODES), default=list(MODES), help="peers and modes")
    parser.add_argument("--workers", nargs="*", type=int, default=turns.WORKERS, help="numbers of workers to measure")
    parser.add_argument("--threads", type=int, default=1, help="threads per run of the model, of all servers")
    parser.add_argument("--wrk", default=shutil.which("wrk"), help="path of wrk")
    parser.add_argument("--keep", type=Path, help="JSON file of finished turns: read first, then updated")
    parser.add_argument("--write", type=Path, help="Markdown file whose part is replaced")
    chosen = parser.parse_args()
    if chosen.wrk is None:
        parser.error("wrk is not installed: apt-get install wrk, or give its path with --wrk")
    pythons, skipped = {}, {}
    for name in chosen.peers if {"closed", "workers"} & {*chosen.only} else ():
        try:
            pythons[name] = interpreter(chosen.cache, MODES[name].package, MODES[name].server(1).install)
        except NotInstalledError as error:
            skipped[name] = str(error)
    options = turns.Options(
        chosen.rounds, chosen.seconds, chosen.wrk, chosen.only, chosen.workers, chosen.threads, chosen.keep
    )
    bench = turns.Bench(pythons, options)
    print(f"This takes about {bench.estimate_s() / 60:.0f} min.", file=sys.stderr)
    try:
        bench.run()
    finally:
        command = f"python -m benchmarks.serving {shlex.join(sys.argv[1:])}"
        part = report.part(bench.turns, pythons, {**skipped, **bench.failed}, options, command)
        print(part)
        if chosen.write:
            replace(chosen.write, report.PART, part)


if __name__ == "__main__":
    main()
