"""Measure recalibration on a running service: its duration with many labels, and its effect on predictions.

    python -m benchmarks.loop refit [--rows 1000000] [--url postgresql://…]
    python -m benchmarks.loop latency [--rows 300000] [--url postgresql://…]
    python -m benchmarks.loop feedback [--rows 300000] [--url postgresql://…] [--connections 1 8 64]

Without a URL the state is SQLite in a temporary folder. For PostgreSQL, give the URL of any database on the server; the
state is then a new database, dropped at the end. `refit` measures recalibrations from POST /recalibrate to the end of
the job, with 2 and with 10 classes. `latency` requires `wrk`: it measures an open loop of predictions at 40 % of the
peak, in turns with nothing else and with continuous recalibrations: as they are, on one processor (`pinned`), or
running a quarter of the time (`paused`); or with simulations of a policy, or, as a control, counting. Each window
gives the time that the service's threads waited for a processor, beside the latencies. `feedback` requires `wrk`
too: clients post one label each time, as soon as the last answer arrives. `--free-core` puts the service
and the load on processor 0 and recalibrations on processor 1; `--slice` gives the service's threads a time slice.
Prints JSON documents, and at the end each kind's p99 divided by that of `nothing`.

    python -m benchmarks.loop latency --seconds 20 --rounds 4 --during refits pinned paused counting
    python -m benchmarks.loop latency --seconds 20 --rounds 4 --slice 0.1
    python -m benchmarks.loop latency --seconds 20 --rounds 4 --free-core
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
from sqlalchemy import select

import bundle
from benchmarks import scheduling
from benchmarks.bulk import fill
from benchmarks.serving import wrk
from benchmarks.serving.formats import Request
from benchmarks.serving.model import LENET, Prepared, prepare
from benchmarks.serving.servers import CANDOR, Running, candor, running
from service.state.database import Database
from service.state.tables import predictions

POLICY = """\
id: default
positive: {positive}
bands:
  - {{action: accept, when: {{min_precision: 0.9}}}}
  - {{action: review, when: {{min_precision: 0.7}}}}
  - {{action: block}}
certify: {{delta: 0.05, looks: unlimited}}
explore: {{share: 1.0, actions: [accept, block]}}
"""
SHARE_OF_PEAK = 0.4
Work = Callable[[int, argparse.Namespace], float]
_PATIENCE_S = 600.0
_IDS = "ids"
_ONE_LABEL = """
local ids = {{}}
for id in io.lines("{ids}") do ids[#ids + 1] = id end
math.randomseed(os.time())
request = function()
  local id = ids[math.random(#ids)]
  return wrk.format(nil, nil, nil, '{{"items": [{{"prediction_id": "' .. id .. '", "label": "1"}}]}}')
end
"""
_CHILD = "service.recalibration.refit_process"
_SHARE = 0.25  # of the time that a paused recalibration runs
_COUNTED = 300_000_000  # some seconds


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("part", choices=["refit", "latency", "feedback"])
    options.add_argument("--url", help="URL of any database on a PostgreSQL server")
    options.add_argument("--rows", type=int)
    options.add_argument("--classes", type=int, nargs="*", default=[2, 10])
    options.add_argument("--calibrator", help="method to fit; default: the active one, temperature")
    options.add_argument("--repeat", type=int, default=2, help="recalibrations per state")
    options.add_argument("--seconds", type=float, default=30.0, help="length of a window of `latency`")
    options.add_argument("--rounds", type=int, default=3, help="rounds, each with one window of each kind")
    options.add_argument("--during", nargs="*", default=["refits"], choices=list(WORK))
    options.add_argument("--free-core", action="store_true", help="recalibrations have a processor of their own")
    options.add_argument("--slice", type=float, help="time slice of the service's threads in milliseconds")
    options.add_argument("--connections", type=int, nargs="*", default=[1, 8, 64], help="clients that post labels")
    options.add_argument("--wrk", default="wrk", help="path of wrk")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.part == "refit":
            for classes in given.classes:
                with served(Path(folder) / str(classes), given.url, given.rows or 1_000_000, classes) as (one, _):
                    for _ in range(given.repeat):
                        print(json.dumps(refit(one.port, given.calibrator)), flush=True)
        elif given.part == "feedback":
            with served(Path(folder), given.url, given.rows or 300_000, 2, labelled=0.0) as (one, _):
                for posted in feedback(one, given, Path(folder)):
                    print(json.dumps(posted), flush=True)
        else:
            if given.free_core:
                os.sched_setaffinity(0, {0})  # inherited by the service, wrk and the load generator
            with served(Path(folder), given.url, given.rows or 300_000, 10, given.slice) as (one, prepared):
                for window in latency(one, prepared, given, Path(folder)):
                    print(json.dumps(window), flush=True)


@contextmanager
def served(
    folder: Path, server: str | None, rows: int, classes: int, slice_ms: float | None = None, *, labelled: float = 1.0
) -> Iterator[tuple[Running, Prepared]]:
    """Make a state and serve it with `candor serve` in a separate process, with a time slice if one is given."""
    folder.mkdir(exist_ok=True)
    policy = POLICY.format(positive="top" if classes > 2 else '"1"')
    prepared = prepare(LENET, folder, classes=classes, policy=policy)
    digest = bundle.verify(prepared.bundles / LENET / "1").manifest.files["model.onnx"]
    with state(folder, server) as url:
        database = Database.open(url)
        began = time.perf_counter()
        fill(database, LENET, digest, rows=rows, classes=classes, labelled=labelled)
        with database.connect() as connection:
            ids = connection.scalars(select(predictions.c.id))
            (folder / _IDS).write_text("\n".join(ids), encoding="ascii")
        print(f"{rows} rows written in {time.perf_counter() - began:.1f} s", file=sys.stderr)
        database.close()
        ours = candor(LENET)
        sliced = () if slice_ms is None else (sys.executable, "-m", "benchmarks.scheduling", str(int(slice_ms * 1e6)))
        program = replace(ours, command=lambda *known: [*sliced, *ours.command(*known)[:-1], url])
        with running(CANDOR, program, Path(sys.executable), prepared, folder) as one:
            yield one, prepared


@contextmanager
def state(folder: Path, server: str | None) -> Iterator[str]:
    """Yield the URL of a new state: a file in the folder, or a new database on a PostgreSQL server."""
    if server is None:
        yield f"sqlite:///{folder}/state.db"
        return
    name = f"candor_loop_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def refit(port: int, calibrator: str | None, poll_s: float = 0.02, until: str | None = None) -> dict[str, Any]:
    """Recalibrate once, poll its progress, and return the duration of each step; `until` ends its window."""
    body: dict[str, Any] = {"mode": "dry_run", "source": {"feedback": {"until": until}}}
    if calibrator is not None:
        body["calibrator"] = calibrator
    began = time.perf_counter()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_PATIENCE_S) as http:
        answer = http.post("/recalibrate", json=body)
        posted = time.perf_counter() - began
        if not answer.is_success:
            raise RuntimeError(f"the recalibration was refused: {answer.text}")
        while (job := http.get(answer.headers["location"]).json())["state"] in ("queued", "running"):
            time.sleep(poll_s)
    total = time.perf_counter() - began
    if job["state"] != "done":
        raise RuntimeError(f"the recalibration failed: {job['error']}")
    result = job["result"]
    return {
        "total_s": round(total, 2),
        "posted_s": round(posted, 2),
        **{name: result[name] for name in ("rows", "took", "summary") if name in result},
    }


def feedback(one: Running, given: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rate of posts with one label of a known prediction each, for each number of connections."""
    request = Request("/feedback", b"", {"content-type": "application/json"})
    lua = _ONE_LABEL.format(ids=folder / _IDS)
    for connections in given.connections:
        starts = Path(f"/proc/{one.pid}/stat").read_text().split()[13:15]
        found = wrk.measure(
            given.wrk, one.port, request, connections=connections, seconds=given.seconds, scratch=folder, lua=lua
        )
        ends = Path(f"/proc/{one.pid}/stat").read_text().split()[13:15]
        used = sum(int(end) - int(start) for end, start in zip(ends, starts, strict=True)) / os.sysconf("SC_CLK_TCK")
        yield {"connections": connections, **asdict(found), "processor_ms": 1e3 * used / (found.per_s * given.seconds)}


def latency(one: Running, prepared: Prepared, given: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Find the peak, then send requests at a fraction of it, in turns without and with recalibrations."""
    given.until = datetime.now(UTC).isoformat()
    request = one.payloads["npy"].write(prepared.inputs[:1])
    body = folder / "body"
    body.write_bytes(request.body)
    for seconds in (2.0, 8.0):  # the first to warm up
        peak = wrk.measure(given.wrk, one.port, request, connections=64, seconds=seconds, scratch=folder)
    rate = SHARE_OF_PEAK * peak.per_s
    yield {"peak_per_s": round(peak.per_s), "rate_per_s": round(rate)}
    command = [sys.executable, "-m", "benchmarks.serving.open_loop", str(one.port), request.path, str(body)]
    command += [f"{rate:.1f}", f"{given.seconds:.1f}", *(f"{name}={value}" for name, value in request.headers.items())]
    treatments = {"pinned": scheduling.pin(max(os.sched_getaffinity(0))), "paused": scheduling.pause(_SHARE)}
    if given.free_core:
        treatments = {"refits": scheduling.pin(1)}
    p99s: dict[str, list[float]] = {}
    pool = ThreadPoolExecutor(1)
    for _ in range(given.rounds):
        for kind in ("nothing", *given.during):
            enough = threading.Event()
            treated = treatments.get(kind)
            with scheduling.children_of(one.pid, _CHILD, treated) if treated else nullcontext():
                work = pool.submit(_again, WORK[kind], one.port, given, enough)
                before, stolen_s = scheduling.delays(one.pid), scheduling.stolen_s()
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                service = scheduling.delays(one.pid).since(before)
                stolen_s = scheduling.stolen_s() - stolen_s
                enough.set()
                took = work.result()
            found = json.loads(done.stdout)
            p99s.setdefault(kind, []).append(found["p99_ms"])
            yield {"during": kind, "took_s": took, "service": service, "stolen_s": round(stolen_s, 2)} | found
    medians = {kind: statistics.median(values) for kind, values in p99s.items()}
    yield {
        "p99_ms": {kind: round(value, 2) for kind, value in medians.items()},
        "p99_beside_nothing": {kind: round(value / medians["nothing"], 2) for kind, value in medians.items()},
    }


def simulate(port: int, _: argparse.Namespace) -> float:
    """Simulate the active policy on the maximum of recent predictions, and return the duration."""
    began = time.perf_counter()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_PATIENCE_S) as http:
        http.post(f"/v1/models/{LENET}/policies/default/simulate", json={"rows": 50_000}).raise_for_status()
    return round(time.perf_counter() - began, 2)


def count(_: int, __: argparse.Namespace) -> float:
    """Keep a core busy at a recalibration's priority: the cost of any concurrent work on this machine."""
    began = time.perf_counter()
    code = f"from service.serving.child import step_back; step_back('idle'); sum(range({_COUNTED}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    return round(time.perf_counter() - began, 2)


def refit_again(port: int, given: argparse.Namespace) -> float:
    """Recalibrate on the labelled predictions from before the measurement, and return the duration."""
    return float(refit(port, given.calibrator, poll_s=0.5, until=given.until)["total_s"])


WORK: dict[str, Work | None] = {
    "nothing": None,
    **dict.fromkeys(("refits", "pinned", "paused"), refit_again),
    "simulations": simulate,
    "counting": count,
}
"""Work beside predictions; each function returns its seconds."""


def _again(
    work: Callable[[int, argparse.Namespace], float] | None,
    port: int,
    given: argparse.Namespace,
    enough: threading.Event,
) -> list[float]:
    """Work until it is enough, and return how long each time took."""
    took = []
    while work is not None and not enough.is_set():
        took.append(work(port, given))
    return took


if __name__ == "__main__":
    main()
