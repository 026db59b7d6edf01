"""The service beside other Python servers on this machine.

    python -m benchmarks.serving --seconds 10 --rounds 3 --keep turns.json --write benchmarks/RESULTS.md

Each server runs the same ONNX model of LeNet's size, with one worker process and one thread for each run of the
model; ours calibrates, decides, logs and counts every request besides. Peers live in virtual environments of their own
below a cache folder, made on the first run; one that cannot be installed, does not start or answers wrongly is left
out, and the report says why. They take turns at being started, asked by wrk (one thread), which must be installed, and
stopped. Answers are compared with ONNX Runtime's own before anything is measured.

A run that was interrupted goes on from its `--keep` file. `--only` names parts: closed (all servers, one image a
request, 1, 16 and 64 connections), batches (32 images a request), in-process (ONNX Runtime, calibration and decision
alone), log (on against off), overload (a model of 5 ms, an open loop at three times what it can do), eager (256 clients
that never wait).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from benchmarks.serving import report, turns
from benchmarks.serving.servers import PEER_SERVERS
from benchmarks.side_by_side.environments import NotInstalledError, interpreter

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "candor-benchmarks"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="where peers are installed")
    parser.add_argument("--rounds", type=int, default=3, help="turns that everyone takes; the report shows medians")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a turn, whole seconds")
    parser.add_argument("--only", nargs="*", choices=turns.PARTS, default=turns.PARTS, help="parts of the benchmark")
    parser.add_argument("--peers", nargs="*", choices=list(PEER_SERVERS), default=list(PEER_SERVERS))
    parser.add_argument("--wrk", default=shutil.which("wrk"), help="the program wrk")
    parser.add_argument("--keep", type=Path, help="a JSON file of finished turns: read at first, then kept up")
    parser.add_argument("--write", type=Path, help="a Markdown file whose part is replaced")
    chosen = parser.parse_args()
    if chosen.wrk is None:
        parser.error("wrk is not installed: apt-get install wrk, or name it with --wrk")
    pythons, skipped = {}, {}
    for name in chosen.peers if "closed" in chosen.only else ():
        try:
            pythons[name] = interpreter(chosen.cache, name.lower().replace(" ", "-"), PEER_SERVERS[name].install)
        except NotInstalledError as error:
            skipped[name] = str(error)
    options = turns.Options(chosen.rounds, chosen.seconds, chosen.wrk, chosen.only, chosen.keep)
    results, failed = turns.run(pythons, options)
    command = " ".join(["python -m benchmarks.serving", *sys.argv[1:]])
    part = report.part(results, pythons, {**skipped, **failed}, options, command)
    print(part)
    if chosen.write:
        report.write(chosen.write, part)


if __name__ == "__main__":
    main()
