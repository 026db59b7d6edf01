"""Half an hour of predictions at 70 % of what the service can do, with feedback and a refit every five minutes.

    python -m tests.hardening.load [--minutes 30] [--share 0.7] [--url postgresql://…]

A real `candor serve` with API keys. `wrk` finds the peak, and open loops up to it the most that is answered and logged:
the capacity. Prints a JSON document for each minute and one for the whole: memory of the server and predictions that
wait for the log at the end of each minute, the slope of memory, latencies, statuses, refits, and whether every label
that was acknowledged is in the state.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sqlalchemy import func, select

from benchmarks.loop import POLICY, state
from benchmarks.serving import wrk
from benchmarks.serving.formats import Request
from benchmarks.serving.model import LENET, Prepared, prepare
from benchmarks.serving.servers import CANDOR, Running, candor, running
from service.state.database import Database
from service.state.tables import feedback
from tests.hardening.keys import bearer

_WINDOW_S = 60.0
_CAPACITY_S = 10.0
_SETTLING = 5  # windows before the slope: caches, the allocator and the first refit fill up
_PATIENCE_S = 120.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=int, default=30)
    options.add_argument("--share", type=float, default=0.7, help="of the peak")
    options.add_argument("--labels", type=int, default=50, help="a second")
    options.add_argument("--refit-every", type=float, default=300.0, help="seconds")
    options.add_argument("--url", help="of any database on a PostgreSQL server")
    options.add_argument("--wrk", default="wrk", help="the program")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = prepare(LENET, folder, policy=POLICY.format(positive="top"))
        with state(folder, given.url) as url:
            ours = candor(LENET)
            program = replace(ours, command=lambda *known: [*ours.command(*known)[:-1], url])
            key = bearer(url, "predict", "feedback", "calibrate")
            with running(CANDOR, program, Path(sys.executable), prepared, folder) as one:
                _run(one, prepared, key, given, folder, url)


def _run(
    one: Running, prepared: Prepared, key: dict[str, str], given: argparse.Namespace, folder: Path, url: str
) -> None:
    request = one.payloads["npy"].write(prepared.inputs[:1])
    request = replace(request, headers={**request.headers, **key})
    body = folder / "body"
    body.write_bytes(request.body)
    for seconds in (5.0, 15.0):  # the first to warm up
        peak = wrk.measure(given.wrk, one.port, request, connections=64, seconds=seconds, scratch=folder)
    # The generator takes time of the same processors, and more of it than `wrk` does.
    tried = (share * peak.per_s for share in (0.6, 0.7, 0.8, 0.9))
    capacity = max(_sustained(one, request, body, rate) for rate in tried)
    rate = given.share * capacity
    print(
        json.dumps({"peak_per_s": round(peak.per_s), "capacity_per_s": round(capacity), "rate_per_s": round(rate)}),
        flush=True,
    )
    rows = one.payloads["npy"].write(prepared.inputs[np.arange(given.labels) % len(prepared.inputs)])
    beside = Beside(one.port, key, rows, given.refit_every)
    windows = []
    with beside:
        for minute in range(given.minutes):
            found = _offer(one, request, body, rate, _WINDOW_S)
            now = {"rss_mib": round(_memory_mib(one.pid), 1), "log_depth": _log_depth(one, request)}
            window = {"minute": minute + 1, **now, **found}
            windows.append(window)
            print(json.dumps(window), flush=True)
    database = Database.open(url, readonly=True)
    with database.connect() as connection:
        stored = connection.execute(select(func.count()).select_from(feedback)).scalar_one()
    database.close()
    print(json.dumps(_whole(windows, beside, stored), indent=2))


def _offer(one: Running, request: Request, body: Path, rate: float, seconds: float) -> dict[str, Any]:
    """Send so many requests a second for so long, whatever becomes of them."""
    command = [sys.executable, "-m", "benchmarks.serving.open_loop", str(one.port), request.path, str(body)]
    command += [f"{rate:.1f}", f"{seconds:.1f}", *(f"{name}={value}" for name, value in request.headers.items())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _sustained(one: Running, request: Request, body: Path, rate: float) -> float:
    """Return how many requests a second are answered and logged: the log's queue hides that it is slower."""
    answered: float = _offer(one, request, body, rate, _CAPACITY_S)["per_s"]
    began = time.perf_counter()
    while _log_depth(one, request):
        time.sleep(0.05)
    return answered * _CAPACITY_S / (_CAPACITY_S + time.perf_counter() - began)


def _log_depth(one: Running, request: Request) -> int:
    """Return how many predictions wait for the log."""
    asked = httpx.get(f"http://127.0.0.1:{one.port}/metrics", headers=request.headers, timeout=_PATIENCE_S)
    line = next(line for line in asked.raise_for_status().text.splitlines() if line.startswith("candor_log_depth "))
    return int(float(line.split()[1]))


def _whole(windows: list[dict[str, Any]], beside: Beside, stored: int) -> dict[str, Any]:
    """Sum the run up."""
    settled = windows[_SETTLING:] or windows
    memory = np.array([(window["minute"] / 60, window["rss_mib"]) for window in settled])
    slope = np.polyfit(memory[:, 0], memory[:, 1], 1)[0] if len(memory) > 1 else np.nan
    statuses = sum((Counter(window["statuses"]) for window in windows), Counter[str]())
    p99 = sorted(window["p99_ms"] for window in windows)
    return {
        "requests": sum(statuses.values()),
        "statuses": statuses,
        "p99_ms": {"median": p99[len(p99) // 2], "least": p99[0], "most": p99[-1]},
        "rss_mib": [windows[0]["rss_mib"], windows[-1]["rss_mib"]],
        "rss_slope_mib_per_h": round(float(slope), 2),
        "refits": beside.refits,
        "labels": {"acknowledged": beside.acknowledged, "stored": stored, "refused": beside.refused},
        "others_statuses": beside.statuses,
    }


@dataclass
class Beside:
    """What goes on beside the predictions: labels every second, a refit now and then.

    Attributes:
        acknowledged: Labels that the service has said are stored.
        refused: Labels that it has said are not.
        refits: What came of each.
        statuses: Of all requests that were sent from here.
    """

    port: int
    key: dict[str, str]
    rows: Request
    refit_every: float
    acknowledged: int = 0
    refused: int = 0
    refits: list[dict[str, Any]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> None:
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._label, self._refit)]
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()

    def _http(self) -> httpx.Client:
        url = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=url, timeout=_PATIENCE_S, headers=self.key)

    def _ask(self, http: httpx.Client, method: str, path: str, **body: Any) -> httpx.Response | None:
        """Send a request and count what became of it; None where nothing came back."""
        try:
            answer = http.request(method, path, **body)
        except httpx.HTTPError as error:
            self.statuses[type(error).__name__] += 1
            return None
        self.statuses[str(answer.status_code)] += 1
        return answer

    def _label(self) -> None:
        """Predict some rows a second, and say of each what it was: in four cases of five what the model said."""
        rng = np.random.default_rng(11)
        with self._http() as http:
            while not self._enough.wait(1.0):
                answer = self._ask(http, "POST", self.rows.path, content=self.rows.body, headers=self.rows.headers)
                if answer is None or answer.status_code != 200:
                    continue
                said = [
                    {
                        "prediction_id": row["prediction_id"],
                        "label": row["label"] if rng.random() < 0.8 else str(rng.integers(10)),
                    }
                    for row in answer.json()["predictions"]
                ]
                answer = self._ask(http, "POST", "/feedback", json={"items": said})
                if answer is not None and answer.is_success:
                    self.acknowledged += len(said)
                else:
                    self.refused += len(said)

    def _refit(self) -> None:
        with self._http() as http:
            while not self._enough.wait(self.refit_every):
                began = time.perf_counter()
                answer = self._ask(http, "POST", "/recalibrate", json={"mode": "dry_run"})
                if answer is None or answer.status_code != 202:
                    self.refits.append({"status": None if answer is None else answer.status_code})
                    continue
                job: dict[str, Any] = {"state": "queued"}
                while job["state"] in ("queued", "running"):
                    time.sleep(0.25)
                    asked = self._ask(http, "GET", answer.headers["location"])
                    job = job if asked is None else asked.json()
                self.refits.append({"state": job["state"], "took_s": round(time.perf_counter() - began, 1)})


def _memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    main()
