"""Overload of a service with keys and limits on: an open loop at three times what a model of 5 ms can do.

    python -m tests.hardening.overload [--seconds 12] [--rounds 3]

The same as `python -m benchmarks.serving --only overload`, but every request carries a key, whose rate is counted, and
the limits on requests and rows that wait are small. Goals: goodput of 90 % of the peak, and a p99 of what is answered
within the deadline. Needs `wrk`. Prints a JSON document for each round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.serving import wrk
from benchmarks.serving.model import SLOW, prepare
from benchmarks.serving.servers import CANDOR, candor, running
from benchmarks.serving.turns import DEADLINE_S, OVERLOAD
from tests.hardening.keys import bearer


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=12.0, help="length of each part of a round")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--wrk", default="wrk", help="the program")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = prepare(SLOW, folder)
        url = f"sqlite:///{folder}/state.db"
        key = bearer(url, "predict")
        ours = candor(SLOW)
        program = replace(ours, command=lambda *known: [*ours.command(*known)[:-1], url])
        settings = {"CANDOR_DEADLINE_S": str(DEADLINE_S), "CANDOR_MAX_QUEUED_ROWS": "256"}
        with running(CANDOR, program, Path(sys.executable), prepared, folder, **settings) as one:
            request = one.payloads["npy"].write(prepared.inputs[:1])
            request = replace(request, headers={**request.headers, **key})
            body = folder / "one"
            body.write_bytes(request.body)
            for _ in range(given.rounds):
                peak = wrk.measure(
                    given.wrk, one.port, request, connections=64, seconds=given.seconds, scratch=folder
                ).per_s
                command = [sys.executable, "-m", "benchmarks.serving.open_loop", str(one.port), request.path, str(body)]
                command += [f"{OVERLOAD * peak:.1f}", f"{given.seconds:.1f}"]
                command += [f"{name}={value}" for name, value in request.headers.items()]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found = json.loads(done.stdout)
                shares = {"peak_per_s": round(peak), "goodput_of_peak": round(found["per_s"] / peak, 3)}
                print(json.dumps(shares | found), flush=True)


if __name__ == "__main__":
    main()
