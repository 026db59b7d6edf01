"""Everything at once: load, kills of workers, restarts of PostgreSQL, and replicas that are replaced one by one.

    python -m tests.hardening.soak [--minutes 60] [--share 0.7] [--every 20] [--bundles examples/bundles]

Two replicas of `candor serve --workers 2` share a PostgreSQL server of the trial's own. An open loop of predictions
runs at a share of what they answer; beside it one client sends labels under idempotency keys, another recalibrates,
activates and rolls back. Every so many seconds, one worker is killed (`kill -9`), PostgreSQL crashes and comes back, or
a new replica replaces the oldest, which gets SIGTERM. A client sends to replicas whose /readyz is 200, as a load
balancer does, and never sends a prediction again that may have arrived.

Prints one JSON document. Exits with 1 if something acknowledged was lost, a request failed that no kill cut, or
anything is left over. What may be lost is said too: predictions that waited for the log in a worker that was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.serving.open_loop import message
from service.state.database import Database
from service.state.tables import activations, jobs
from tests.hardening.subjects import PATIENCE_S, POLICIES, Digits, dimmed_digits
from tests.hardening.victim import Victim, gone_after_s, parent_of, processes
from tests.hardening.whole_state import History, half_done, label_counts, missing_predictions
from tests.service.cluster import Cluster

MODEL = Digits.model
KINDS = ("kill", "kill", "replace", "database")
_CUT_S = 1.0  # after a kill, clients learn that their connections have gone
_BACK_S = 5.0  # after PostgreSQL is back, until the last replica has noticed
_CAPACITY_S = 5.0
_MOST_AT_ONCE = 512  # predictions that are not answered yet
_CONNECTIONS = 16  # while the capacity is measured


@dataclass(eq=False)
class Replica:
    """A replica, and the connections to it that no request uses."""

    victim: Victim
    ready: bool = False
    idle: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=deque)

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.victim.url.rpartition(":")[2])


@dataclass
class Found:
    """What came of the requests.

    Attributes:
        latencies_s: Of answered predictions, by minute, from when they were due.
        failures: Predictions that were not answered with 200: when sent, when they failed, the port, and what happened.
        predictions: Ids of all that were answered, with the time.
        shown: Newest ids with the row that they are about, for labels.
        refused: Requests of other clients that got a 5xx status or no answer, and were sent again: when sent,
            when refused, and what.
        labelled: Predictions whose labels were acknowledged.
        moves: Acknowledged activations and rollbacks: epoch and revision.
        jobs: Acknowledged recalibrations.
        problems: What should not have been.
        events: What was done to the service, and when.
        kills: When a worker was killed, and the port of its replica.
        away: When PostgreSQL went, and when it was back.
    """

    latencies_s: list[list[float]] = field(default_factory=list)
    failures: list[tuple[float, float, int, str]] = field(default_factory=list)
    predictions: list[tuple[float, str]] = field(default_factory=list)
    shown: deque[tuple[str, int]] = field(default_factory=lambda: deque(maxlen=500))
    refused: list[tuple[float, float, str]] = field(default_factory=list)
    labelled: list[str] = field(default_factory=list)
    moves: list[tuple[int, str]] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    kills: list[tuple[float, int]] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)

    def not_cut(self) -> list[str]:
        """Return the failures that no kill of a worker of the same replica explains."""
        return [
            f"{port}: {what} after {failed - sent:.2f} s, sent {self.latest(sent)}, failed {self.latest(failed)}"
            for sent, failed, port, what in self.failures
            if not (what == "broken" and any(p == port and sent - _CUT_S <= at <= failed for at, p in self.kills))
        ]

    def latest(self, at: float) -> str:
        """Say what was done last before a time."""
        before = [(when, what) for when, what in self.events if when <= at]
        return f"{at - before[-1][0]:.1f} s after {before[-1][1]}" if before else "before anything"

    def while_away(self, at: float, end: float | None = None) -> bool:
        """Whether PostgreSQL was away at a time, or until an end, or had just come back."""
        last = at if end is None else end
        return any(since <= last and at <= until + _BACK_S for since, until in self.away)


class Soak:
    """The run.

    Args:
        folder: An empty folder.
        cluster: The database server.
        bundles: Folder of bundles with a model called "digits".
        seed: Of what is drawn.
    """

    def __init__(self, folder: Path, cluster: Cluster, bundles: Path, seed: int) -> None:
        self.found = Found()
        self.replicas: list[Replica] = []
        self._http = httpx.Client(timeout=PATIENCE_S)  # of all threads
        self._draw = random.Random(seed)
        self._cluster = cluster
        self._log = folder / "log"
        self._images, self._labels = dimmed_digits()
        self._over = threading.Event()
        (folder / "tmp").mkdir()
        self._mark = f"TMPDIR={folder}/tmp"
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("CANDOR_")} | {
            "CANDOR_BUNDLES": str(bundles.resolve()),
            "CANDOR_POLICIES": str(POLICIES),
            "CANDOR_DATABASE_URL": cluster.url,
            "CANDOR_UPLOADS": f"{folder}/uploads",
            "CANDOR_POLL_INTERVAL_S": "0.5",
            "CANDOR_WORKERS": "2",
            "CANDOR_THREADS": "1",
            "CANDOR_STOP_DELAY_S": "2",
            "CANDOR_REFIT_CPU": "idle",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": f"{folder}/tmp",
        }

    def run(self, minutes: float, share: float, every_s: float) -> dict[str, Any]:
        """Run all of it; return the report."""
        try:
            for _ in range(2):
                self._start()
            watching = threading.Thread(target=self._watch)
            watching.start()
            threading.Thread(target=self._tell, daemon=True).start()
            requests = [message("/predict", self._body(row), _JSON) for row in range(256)]
            capacity = asyncio.run(_capacity(self.replicas, requests))
            rate = share * capacity
            threads = [threading.Thread(target=work) for work in (self._label, self._operate)]
            chaos = threading.Thread(target=self._disturb, args=(every_s,))
            for thread in (*threads, chaos):
                thread.start()
            asyncio.run(_offer(self.replicas, requests, rate, 60 * minutes, self.found))
            self._over.set()
            for thread in (*threads, chaos, watching):
                thread.join(PATIENCE_S)
            with httpx.Client(timeout=PATIENCE_S) as http:
                unready = [replica.port for replica in self.replicas if not _ready(http, replica)]
            self.found.problems += [f"the replica on {port} is not ready at the end" for port in unready]
        finally:
            self._over.set()
            for replica in self.replicas:
                self._stop(replica)
        if gone_after_s(self._mark) is None:
            self.found.problems.append("a process lives on")
        return {"capacity_per_s": round(capacity), "rate_per_s": round(rate), **self._report()}

    def _start(self) -> None:
        replica = Replica(Victim(self._environment, self._log))
        replica.victim.wait_until_ready()
        self.replicas.append(replica)

    def _stop(self, replica: Replica) -> None:
        if (status := replica.victim.stop()) != 0:
            self.found.problems.append(f"a replica ended with {status}")

    def _body(self, row: int) -> bytes:
        return json.dumps({"inputs": self._images[[row]].tolist()}).encode()

    def _watch(self) -> None:
        """Keep `ready` up to date, as a load balancer does."""
        with httpx.Client(timeout=5) as http:
            while not self._over.wait(0.25):
                for replica in self.replicas:
                    replica.ready = _ready(http, replica)

    def _tell(self) -> None:
        """Say every minute how far the run is."""
        for minute in itertools.count(1):
            if self._over.wait(60):
                return
            found, cut = self.found, len(self.found.failures) - len(self.found.not_cut())
            told = f"{minute} min: {len(found.predictions):,} predictions, {cut} cut by a kill"
            print(told, found.not_cut()[-3:], found.problems[-3:], file=sys.stderr, flush=True)

    def _disturb(self, every_s: float) -> None:
        kinds: list[str] = []
        while not self._over.wait(every_s):
            kinds = kinds or self._draw.sample(KINDS, len(KINDS))
            kind = kinds.pop()
            self.found.events.append((time.monotonic(), kind))
            try:
                {"kill": self._kill, "replace": self._replace, "database": self._restart}[kind]()
            except Exception as error:  # noqa: BLE001 — whatever it is, it is told
                self.found.problems.append(f"{kind}: {error!r}")

    def _kill(self) -> None:
        replica = self._draw.choice(self.replicas)
        supervisor = replica.victim.popen.pid
        workers = [pid for pid in processes() if parent_of(pid) == supervisor]
        self.found.kills.append((time.monotonic(), replica.port))
        os.kill(self._draw.choice(workers), signal.SIGKILL)
        self.found.events.append((time.monotonic(), f"killed a worker of {replica.port}"))

    def _replace(self) -> None:
        """Start a replica, and stop the oldest once the new one is ready."""
        self._start()
        time.sleep(1)  # until it gets requests
        oldest = self.replicas[0]
        self.found.events.append((time.monotonic(), f"SIGTERM to {oldest.port}"))
        self._stop(oldest)  # it is unready first, and gets no requests any more
        self.found.events.append((time.monotonic(), f"{oldest.port} has ended"))
        self.replicas.remove(oldest)

    def _restart(self) -> None:
        began = time.monotonic()
        self.found.away.append((began, float("inf")))
        self._cluster.crash()
        time.sleep(self._draw.uniform(0, 3))
        self._cluster.start()
        self.found.away[-1] = began, time.monotonic()

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """Send a request to a ready replica; None where the run ends before it is answered.

        It is sent again if it got no answer, or a 5xx status, and all that is sent here may be.
        """
        while True:
            ready = [replica for replica in self.replicas if replica.ready]
            if ready:
                url = self._draw.choice(ready).victim.url
                sent = time.monotonic()
                try:
                    answer = self._http.request(method, url + path, **options)
                except httpx.TransportError as error:
                    self.found.refused.append((sent, time.monotonic(), type(error).__name__))
                else:
                    if answer.status_code < 500:
                        return answer
                    self.found.refused.append((sent, time.monotonic(), f"{answer.status_code} {answer.text[:200]}"))
            if self._over.wait(0.2):
                return None

    def _label(self) -> None:
        while not self._over.wait(0.2):
            pairs = [self.found.shown.popleft() for _ in range(min(len(self.found.shown), 20))]
            items = [{"prediction_id": id_, "label": self._labels[row], "source": "reviewer"} for id_, row in pairs]
            key = {"idempotency-key": uuid.uuid4().hex}
            if items and (answer := self._ask("POST", "/feedback", json={"items": items}, headers=key)) is not None:
                if answer.status_code != 200 or answer.json()["stored"] != len(items):
                    self.found.problems.append(f"of {len(items)} labels: {answer.status_code} {answer.text[:200]}")
                else:
                    self.found.labelled += [id_ for id_, _ in pairs]

    def _operate(self) -> None:
        """Recalibrate, activate and roll back."""
        while not self._over.wait(5):
            kind = self._draw.choice(("refit", "policy", "move", "move"))
            if kind == "policy":
                bands = [{"action": "accept", "when": {"min_probability": self._draw.uniform(0.3, 0.99)}}]
                policy = {"positive": "top", "bands": [*bands, {"action": "review"}]}
                answer = self._ask("PUT", f"/v1/models/{MODEL}/policies/default", json=policy)
                if answer is not None and answer.status_code != 201:
                    self.found.problems.append(f"policy: {answer.status_code} {answer.text[:200]}")
            elif kind == "refit":
                answer = self._ask("POST", "/recalibrate", json={"mode": "propose", "calibrator": "temperature"})
                if answer is not None and answer.status_code == 202:
                    self.found.jobs.append(answer.json()["job"])
                elif answer is not None and answer.status_code != 422:  # not enough labels yet
                    self.found.problems.append(f"recalibrate: {answer.status_code} {answer.text[:200]}")
            elif (listed := self._ask("GET", f"/v1/models/{MODEL}/revisions?limit=20")) is not None:
                document = listed.json()
                if others := [item["id"] for item in document["items"] if item["id"] != document["active"]]:
                    path = f"/v1/models/{MODEL}/revisions/{self._draw.choice(others)}/activate"
                    body = {"reason": "it is what the trial is about", "accept_change": True}
                    match = {"if-match": f'"{document["epoch"]}"'}
                    answer = self._ask("POST", path, json=body, headers=match)
                    # 412: an activation whose answer was lost was sent again.
                    if answer is not None and answer.status_code == 200:
                        self.found.moves.append((answer.json()["epoch"], answer.json()["active"]))
                    elif answer is not None and answer.status_code != 412:
                        self.found.problems.append(f"activate: {answer.status_code} {answer.text[:200]}")

    def _report(self) -> dict[str, Any]:
        found = self.found
        history = History()
        database = Database.open(self._cluster.url, readonly=True)
        try:
            with database.connect() as connection:
                found.problems += half_done(connection, MODEL) + history.problems(connection)
                counts = label_counts(connection)
                if wrong := [id_ for id_ in found.labelled if counts[id_] != 1]:
                    found.problems.append(f"{len(wrong)} acknowledged labels are not there once, such as {wrong[0]}")
                pointed = {(row.epoch, row.active) for row in connection.execute(activations.select())}
                numbers = {f"j{row.number}" for row in connection.execute(jobs.select())}
                if lost := set(found.moves) - pointed:
                    found.problems.append(f"{len(lost)} acknowledged activations lost, such as {sorted(lost)[0]}")
                if lost_jobs := set(found.jobs) - numbers:
                    found.problems.append(f"{len(lost_jobs)} acknowledged recalibrations lost")
                # A worker that is killed loses what waits for the log, which is all of it while PostgreSQL is away.
                lost = self._may_be_lost(np.array([at for at, _ in found.predictions]))
                near = [id_ for (_, id_), may in zip(found.predictions, lost, strict=True) if may]
                far = [id_ for (_, id_), may in zip(found.predictions, lost, strict=True) if not may]
                lost_near, lost_far = (missing_predictions(connection, ids) if ids else 0 for ids in (near, far))
                if lost_far:
                    found.problems.append(f"{lost_far} predictions are not logged, and no kill explains it")
        finally:
            database.close()
        elsewhere = [
            what
            for sent, at, what in found.refused
            if not found.while_away(sent, at) and not self._just_killed(sent, at)
        ]
        found.problems += [f"refused: {what}" for what in elsewhere]
        not_cut = found.not_cut()
        p99 = [round(1e3 * float(np.percentile(part, 99)), 1) for part in found.latencies_s if part]
        return {
            "problems": found.problems,
            "predictions": len(found.predictions),
            "cut by a kill": len(found.failures) - len(not_cut),
            "failed otherwise": not_cut,
            "not logged, in workers that were killed": lost_near,
            "labels": len(found.labelled),
            "activations": len(found.moves),
            "recalibrations": len(found.jobs),
            "sent again while PostgreSQL was away or after a kill": len(found.refused) - len(elsewhere),
            "events": dict(Counter(what for _, what in found.events)),
            "timeline": [f"{at - found.events[0][0]:.1f} {what}" for at, what in found.events],
            "p99_ms": statistics.median(p99) if p99 else None,
            "p99_ms by minute": p99,
        }

    def _may_be_lost(self, at: np.ndarray) -> np.ndarray:
        """Return which of these times are so near to a kill, or to an outage with one, that the log may lack them."""
        found = self.found
        near = np.zeros(len(at), bool)
        for kill, _ in found.kills:
            near |= (at - _CUT_S <= kill) & (kill <= at + _CUT_S + _BACK_S)
        if any(found.while_away(kill) for kill, _ in found.kills):
            for since, until in found.away:
                near |= (since <= at) & (at <= until + _BACK_S)
        return near

    def _just_killed(self, sent: float, failed: float) -> bool:
        return any(sent - _CUT_S <= kill <= failed for kill, _ in self.found.kills)


_JSON = {"content-type": "application/json"}


def _ready(http: httpx.Client, replica: Replica) -> bool:
    with suppress(httpx.TransportError):
        return http.get(f"{replica.victim.url}/readyz").status_code == 200
    return False


async def _ask(replica: Replica, request: bytes) -> tuple[int, bytes]:
    """Send a request on a connection of its own, or one that is free; return status and body.

    Raises:
        ConnectionRefusedError: It was not sent.
        OSError, asyncio.IncompleteReadError: The connection broke.
    """
    reader = writer = None
    while replica.idle and reader is None:
        reader, writer = replica.idle.pop()
        if reader.at_eof() or writer.is_closing():
            writer.close()
            reader = None
    if reader is None or writer is None:
        reader, writer = await asyncio.open_connection("127.0.0.1", replica.port)
    try:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        lines = head.split(b"\r\n")
        body = await reader.readexactly(next(int(line[15:]) for line in lines if line.startswith(b"content-length:")))
    except BaseException:
        writer.close()
        raise
    if b"connection: close" in lines:
        writer.close()
    else:
        replica.idle.append((reader, writer))
    return int(head[9:12]), body


async def _capacity(replicas: list[Replica], requests: list[bytes]) -> float:
    """Return how many predictions a second a few clients get answered that send one after the other."""
    for replica in replicas:
        replica.ready = True
    answered = 0
    end = time.perf_counter() + _CAPACITY_S

    async def client(replica: Replica) -> None:
        nonlocal answered
        while time.perf_counter() < end:
            await _ask(replica, requests[answered % len(requests)])
            answered += 1

    await asyncio.gather(*(client(replica) for replica in replicas for _ in range(_CONNECTIONS // 2)))
    for replica in replicas:
        while replica.idle:
            replica.idle.pop()[1].close()
    return answered / _CAPACITY_S


async def _offer(replicas: list[Replica], requests: list[bytes], rate: float, seconds: float, found: Found) -> None:
    """Send so many predictions a second, whatever becomes of them."""

    async def send(number: int, due: float) -> None:
        which = number % len(requests)
        for _ in range(100):
            ready = [replica for replica in replicas if replica.ready] or replicas
            replica = ready[number % len(ready)]
            sent = time.monotonic()
            try:
                status, body = await _ask(replica, requests[which])
            except ConnectionRefusedError:  # it has not arrived anywhere
                await asyncio.sleep(0.01)
                continue
            except (OSError, asyncio.IncompleteReadError):
                found.failures.append((sent, time.monotonic(), replica.port, "broken"))
                return
            now = time.monotonic()
            if status != 200:
                found.failures.append((sent, now, replica.port, f"{status} {body[:200].decode(errors='replace')}"))
                return
            id_ = json.loads(body)["predictions"][0]["prediction_id"]
            found.latencies_s[int((due - began) / 60)].append(now - due)
            found.predictions.append((now, id_))
            found.shown.append((id_, which))
            return
        found.failures.append((sent, time.monotonic(), replica.port, "no replica accepts connections"))

    found.latencies_s = [[] for _ in range(int(seconds / 60) + 1)]
    began = time.monotonic()
    sent: set[asyncio.Task[None]] = set()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        if (early := due - time.monotonic()) > 0:
            await asyncio.sleep(early)
        while len(sent) >= _MOST_AT_ONCE:  # late, which their latency says
            await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(send(number, due))
        sent.add(task)
        task.add_done_callback(sent.discard)
    await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--share", type=float, default=0.7, help="Share of the capacity that is offered.")
    parser.add_argument("--every", type=float, default=20, help="Seconds between two disturbances.")
    parser.add_argument("--bundles", type=Path, default=Path("examples/bundles"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not programs:
        sys.exit("PostgreSQL's server is not installed.")
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as data:
        Path(data).chmod(0o755)
        cluster = Cluster(Path(data), programs[-1].parent)
        try:
            soak = Soak(Path(name), cluster, given.bundles, given.seed)
            try:
                report = soak.run(given.minutes, given.share, given.every)
            except BaseException:
                print(soak.found.problems, (Path(name) / "log").read_text()[-5_000:], file=sys.stderr)
                raise
            if report["problems"] or report["failed otherwise"]:
                print((Path(name) / "log").read_text()[-20_000:], file=sys.stderr)
        finally:
            cluster.crash()
    machine = {"processors": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    print(json.dumps({"minutes": given.minutes, **machine, **report}, indent=1))
    sys.exit(bool(report["problems"] or report["failed otherwise"]))


if __name__ == "__main__":
    main()
