"""Replicas on one PostgreSQL, each a process: they agree, none serves a mixture, and one that is cut off goes on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import numpy as np
import psycopg
import pytest

from calibrators import Temperature
from service.inference.session import Session
from service.state.database import Database, now_us
from service.state.revisions import RevisionStore
from tests.waiting import PATIENCE_S, until

from .cluster import Cluster
from .conftest import Process

REPLICAS = 3
MOVES = 6
RESTARTS = 2
LABELS_PER_REQUEST = 3


class Proxy:
    """A way to a TCP server that can be cut and mended."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._ends: list[socket.socket] = []
        self._changing = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._whole = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection; new ones break at once."""
        with self._changing:
            self._whole = False
            ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def mend(self) -> None:
        with self._changing:
            self._whole = True

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._changing:
                if not self._whole:
                    near.close()
                    continue
                far = socket.create_connection(self._to)
                self._ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(postgresql_url: str) -> Iterator[Proxy]:
    parts = urlsplit(postgresql_url)
    opened = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    yield opened
    opened.close()


def through(url: str, proxy: Proxy) -> str:
    """The database's URL by way of the proxy."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{proxy.port}"))


@dataclass
class Watch:
    """A client of one replica that checks that what it is told belongs together."""

    service: Process
    expected: dict[str, tuple[str, str, Any]]
    body: dict[str, Any]
    problems: list[str] = field(default_factory=list)
    asked: int = 0

    def until(self, stop: threading.Event) -> None:
        with httpx.Client(base_url=self.service.url, timeout=PATIENCE_S) as http:
            while not stop.wait(0.005):
                response = http.post("/predict?policy=default", json=self.body)
                if response.status_code != 200:
                    self.problems.append(response.text)
                    return
                answer = response.json()
                policy, action, probabilities = self.expected[answer["revision"]]
                row = answer["predictions"][0]
                got = np.array(list(row["probabilities"].values()), np.float32)
                if (answer["policy"]["id"], row["decision"]["action"]) != (policy, action):
                    self.problems.append(f"{answer['revision']} decided {answer['policy']['id']} {row['decision']}")
                if not np.allclose(got, probabilities, atol=1e-6):
                    self.problems.append(f"{answer['revision']} answered {got}")
                self.asked += 1


def propose_distinct(store: RevisionStore, digits: Any, first: Process, image: Any) -> dict[str, tuple[str, str, Any]]:
    """Keep revisions that differ in calibrator and threshold; returns what each must answer, by id."""
    logits = Session(digits.bundle, provider="cpu", threads=1).run(image)
    expected = {}
    for number, share in enumerate((0.01, 0.999)):
        solved = store.get("digits", first.propose_policy("default", share))
        calibrator = Temperature.from_dict(solved.calibrator.to_dict() | {"temperature": 3.0 + number})
        fields = {name: getattr(solved, name) for name in ("bundle_id", "bundle_version", "model_digest", "policies")}
        revision = store.propose(
            **fields, model="digits", calibrator=calibrator, parent="r1", cause="recalibrate", by="test", gate="passed",
            created_at=now_us(), report={},
        )  # fmt: skip
        probabilities = calibrator.predict_proba(logits)[0]
        policy = f"default@{solved.policies['default'].version}"
        expected[revision.id] = policy, "accept" if probabilities.max() >= share else "review", probabilities
    assert {action for _, action, _ in expected.values()} == {"accept", "review"}
    return expected


def test_an_activation_reaches_all_none_serves_a_mixture_and_one_cut_off_goes_on(
    spawn: Any, digits: Any, postgresql_url: str, proxy: Proxy
) -> None:
    urls = [postgresql_url, postgresql_url, through(postgresql_url, proxy)]
    replicas = [spawn(wait=False, database_url=url) for url in urls]
    for replica in replicas:
        replica.wait_until_it_listens()
    image = digits.dimmed[:1]
    body = {"inputs": image.tolist()}
    database = Database.open(postgresql_url)
    expected = propose_distinct(RevisionStore(database), digits, replicas[0], image)
    database.close()
    names = list(expected)

    def all_serve(revision: str, among: list[Process]) -> bool:
        return {replica.http.get("/readyz").json()["models"]["digits"] for replica in among} == {revision}

    def all_have_asked(before: list[int]) -> bool:
        return all(w.problems or w.asked > b for w, b in zip(watches, before, strict=True))

    replicas[0].activate(names[0])
    until(lambda: all_serve(names[0], replicas))
    watches = [Watch(replica, expected, body) for replica in replicas]
    stop = threading.Event()
    clients = [threading.Thread(target=watch.until, args=(stop,)) for watch in watches]
    for client in clients:
        client.start()
    try:
        for move in range(1, MOVES + 1):
            replicas[move % REPLICAS].activate(names[move % 2])
            until(partial(all_serve, names[move % 2], replicas))
            before = [watch.asked for watch in watches]
            until(partial(all_have_asked, before))

        cut_off, others = replicas[2], replicas[:2]
        label = {"items": [{"reference": "tx-1", "label": "1"}]}
        assert cut_off.http.post("/feedback", json=label).status_code == 200
        proxy.cut()
        active, newer = names[MOVES % 2], names[(MOVES + 1) % 2]
        others[0].activate(newer)
        until(lambda: all_serve(newer, others))
        refused = cut_off.http.post("/feedback", json=label)
        assert (refused.status_code, refused.json()["type"]) == (503, "/errors/state-unavailable")
        assert refused.headers["retry-after"]
        ready = until(lambda: (found := cut_off.http.get("/readyz")).json()["stale_for_s"] >= 0.5 and found)
        assert ready.status_code == 200
        assert ready.json()["models"] == {"digits": active}
        assert cut_off.metric("candor_state_stale_seconds") > 0.4  # the other is rounded
        assert cut_off.http.post("/predict", json=body).json()["revision"] == active
        proxy.mend()
        until(lambda: all_serve(newer, replicas))
        assert until(lambda: cut_off.http.get("/readyz").json()["stale_for_s"] < 0.5)
        assert cut_off.http.post("/feedback", json=label).status_code == 200
    finally:
        stop.set()
        for client in clients:
            client.join(PATIENCE_S)
    assert [problem for watch in watches for problem in watch.problems] == []


def test_one_that_was_told_to_is_not_ready_while_it_is_cut_off(start: Any, postgresql_url: str, proxy: Proxy) -> None:
    service = start(state=through(postgresql_url, proxy), unready_after=0.2)
    assert until(lambda: service.http.get("/readyz").status_code == 200)
    proxy.cut()
    answer = until(lambda: (found := service.http.get("/readyz")).status_code == 503 and found)
    assert list(answer.json()["problems"]) == ["state"]
    assert "longer than 0.2 s" in answer.json()["problems"]["state"]
    assert service.http.get("/v2/health/ready").status_code == 503
    proxy.mend()
    until(lambda: service.http.get("/readyz").status_code == 200)


def test_a_postgresql_that_crashes_under_load_loses_no_acknowledged_feedback(spawn: Any, cluster: Cluster) -> None:
    replicas = [spawn(wait=False, database_url=cluster.url) for _ in range(2)]
    for replica in replicas:
        replica.wait_until_it_listens()
    acknowledged: list[list[str]] = [[] for _ in replicas]
    refusals = [0] * len(replicas)
    problems: list[str] = []
    stop = threading.Event()

    def send(which: int) -> None:
        """Send labels in small batches, each again under its key until it is answered."""
        with httpx.Client(base_url=replicas[which].url, timeout=PATIENCE_S) as http:
            while not stop.is_set():
                start = len(acknowledged[which])
                names = [f"{which}/{start + offset}" for offset in range(LABELS_PER_REQUEST)]
                items = [{"reference": name, "label": "1"} for name in names]
                answer = http.post("/feedback", json={"items": items}, headers={"idempotency-key": names[0]})
                if answer.status_code == 200:
                    acknowledged[which].extend(names)
                elif answer.status_code == 503:
                    refusals[which] += 1
                    time.sleep(0.01)
                else:
                    problems.append(answer.text)
                    return

    def all_have_sent(before: list[int], more: int) -> bool:
        return bool(problems) or all(len(a) > b + more for a, b in zip(acknowledged, before, strict=True))

    senders = [threading.Thread(target=send, args=(which,)) for which in range(len(replicas))]
    for sender in senders:
        sender.start()
    for _ in range(RESTARTS):
        before = [len(names) for names in acknowledged]
        until(partial(all_have_sent, before, 20))
        cluster.crash()
        cluster.start()
    before = [len(names) for names in acknowledged]
    until(partial(all_have_sent, before, 0))
    stop.set()
    for sender in senders:
        sender.join(PATIENCE_S)
    assert problems == []
    assert sum(refusals) > 0
    with psycopg.connect(cluster.url) as connection:
        stored = [target for (target,) in connection.execute("SELECT target FROM feedback")]
    # A batch that was stored and not answered was answered when it came again, and is there once.
    assert sorted(stored) == sorted(name for names in acknowledged for name in names)
