"""Five clients that keep a service busy, and the ledger of what it has acknowledged to them."""

from __future__ import annotations

import io
import random
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import numpy as np

from tests.hardening.subjects import PATIENCE_S, Ask, Subject

UPLOAD_S = 600.0  # it is checked on time of the processors that is left over
PAUSE_S = 0.05
ROWS = 16
SET_ROWS = 400


class Ledger:
    """What services have acknowledged, over all their lives.

    Attributes:
        predictions: Ids.
        labelled: Predictions whose labels were acknowledged.
        acknowledged: Idempotency keys, epochs with what became active, revisions, jobs and labelled sets.
        unanswered: Feedback that was sent and not answered, by key: body and predictions.
    """

    def __init__(self) -> None:
        self.predictions: list[str] = []
        self.labelled: list[str] = []
        self.acknowledged: dict[str, list[Any]] = {
            name: [] for name in ("feedback", "moves", "revisions", "jobs", "sets")
        }
        self.unanswered: dict[str, tuple[dict[str, Any], list[str]]] = {}

    def counts(self) -> dict[str, int]:
        """Return how many of each there are."""
        counts = {name: len(names) for name, names in self.acknowledged.items()}
        return {"predictions": len(self.predictions), "labels": len(self.labelled), **counts}


class Clients:
    """One client a thread, each until the connection breaks.

    Args:
        url: Of the service.
        subject: What they ask about.
        ledger: Where they write what is acknowledged.
        seed: Of what they draw.

    Attributes:
        problems: Answers that should not have been.
    """

    def __init__(self, url: str, subject: Subject, ledger: Ledger, seed: int) -> None:
        self.problems: list[str] = []
        self._ledger = ledger
        self._subject, self._names = subject, subject.names
        self._connections = ExitStack()
        self._asked: Ask = self._connections.enter_context(subject.asking(url))
        self._url = url
        self._seed = seed
        self._busy: set[str] = set()
        self._over = threading.Event()
        self._labels: deque[tuple[str, str]] = deque(maxlen=1_000)
        self._work: dict[str, Callable[[httpx.Client, random.Random], None]] = {
            "predictions": self._predict,
            "feedback": self._label,
            "refits": self._refit,
            "moves": self._move,
            "sets": self._upload,
        }
        self._threads = [threading.Thread(target=self._until_it_dies, args=(name,), name=name) for name in self._work]

    def upload(self) -> None:
        """Upload one labelled set, and wait until it is acknowledged."""
        with httpx.Client(base_url=self._url, timeout=UPLOAD_S) as http:
            self._upload(http, random.Random(self._seed))
        self._busy.discard("sets")

    def start(self) -> None:
        """Set all of them to work."""
        for thread in self._threads:
            thread.start()

    def wait_until_busy(self, name: str) -> None:
        """Return when one of them waits for an answer, or after a few seconds in which it never did."""
        give_up = time.monotonic() + 5
        while name not in self._busy and time.monotonic() < give_up:
            time.sleep(0.001)

    def busy(self) -> Counter[str]:
        """Return who waits for an answer."""
        return Counter(self._busy)

    def join(self) -> None:
        """Wait until all have noticed that the service has gone."""
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                self.problems.append(f"the client of {thread.name} hangs")
        self.close()

    def close(self) -> None:
        """Close the connections of those that have not begun to work."""
        self._connections.close()

    def send_again(self) -> None:
        """Send what was not answered once more, under its key."""
        with httpx.Client(base_url=self._url, timeout=PATIENCE_S) as http:
            for key in list(self._ledger.unanswered):
                self._send(http, key)

    def _until_it_dies(self, name: str) -> None:
        draw = random.Random(f"{self._seed} {name}")
        try:
            with httpx.Client(base_url=self._url, timeout=PATIENCE_S) as http:
                while not self._over.is_set():
                    self._busy.discard(name)
                    time.sleep(draw.uniform(0, PAUSE_S))
                    self._work[name](http, draw)
        except httpx.TransportError:
            pass
        except Exception as error:  # noqa: BLE001 — whatever it is, it is told
            self.problems.append(f"{name}: {error!r}")

    def _ask(self, name: str, http: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
        self._busy.add(name)
        return http.request(method, path, **options)

    def _expected(self, response: httpx.Response, *statuses: int) -> bool:
        if response.status_code in statuses:
            return True
        self.problems.append(f"{response.request.url.path}: {response.status_code} {response.text[:300]}")
        return False

    def _predict(self, _: httpx.Client, draw: random.Random) -> None:
        which = [draw.randrange(len(self._names)) for _ in range(ROWS)]
        self._busy.add("predictions")
        if (ids := self._asked(which)) is not None:
            self._ledger.predictions += ids
            self._labels += [(id_, self._names[row]) for id_, row in zip(ids, which, strict=True)]

    def _label(self, http: httpx.Client, draw: random.Random) -> None:
        pairs = [self._labels.popleft() for _ in range(min(len(self._labels), draw.randint(1, 20)))]
        if pairs:
            key = str(uuid.UUID(int=draw.getrandbits(128)))
            items = [{"prediction_id": id_, "label": label, "source": "reviewer"} for id_, label in pairs]
            self._ledger.unanswered[key] = {"items": items}, [id_ for id_, _ in pairs]
            self._send(http, key)

    def _send(self, http: httpx.Client, key: str) -> None:
        body, ids = self._ledger.unanswered[key]
        answer = self._ask("feedback", http, "POST", "/feedback", json=body, headers={"idempotency-key": key})
        if self._expected(answer, 200):
            if answer.json()["stored"] != len(ids):
                self.problems.append(f"of {len(ids)} labels: {answer.text[:300]}")
            self._ledger.acknowledged["feedback"].append(key)
            self._ledger.labelled += ids
        del self._ledger.unanswered[key]

    def _refit(self, http: httpx.Client, draw: random.Random) -> None:
        asked: dict[str, Any] = {"mode": draw.choice(("dry_run", "propose", "activate")), "calibrator": "temperature"}
        sets = self._ledger.acknowledged["sets"]
        if sets and draw.random() < 0.2:
            asked["source"] = {"labelled_set": draw.choice(sets)}
        answer = self._ask("refits", http, "POST", "/recalibrate", json=asked)
        # 422: there are not enough labels yet.
        if self._expected(answer, 202, 422) and answer.status_code == 202:
            self._ledger.acknowledged["jobs"].append(answer.json()["job"])
            while http.get(answer.headers["location"]).json()["state"] in ("queued", "running"):
                time.sleep(0.02)

    def _move(self, http: httpx.Client, draw: random.Random) -> None:
        listed = self._ask(
            "moves", http, "GET", f"/v1/models/{self._subject.model}/revisions", params={"limit": 20}
        ).json()
        match = {"if-match": f'"{listed["epoch"]}"'}
        what = draw.choice(("policy", "activate", "activate", "rollback"))
        if what == "policy":
            share = round(draw.uniform(0.3, 0.99), 6)
            bands = [{"action": "accept", "when": {"min_probability": share}}, {"action": "review"}]
            document = {"positive": "top", "bands": bands}
            answer = self._ask(
                "moves", http, "PUT", f"/v1/models/{self._subject.model}/policies/default", json=document
            )
            if self._expected(answer, 201):
                self._ledger.acknowledged["revisions"].append(answer.json()["id"])
            return
        if what == "activate":
            others = [item["id"] for item in listed["items"] if item["id"] != listed["active"]]
            if not others:
                return
            path = f"revisions/{draw.choice(others)}/activate"
        else:
            path = "rollback"
        body: dict[str, Any] = {"reason": "it is what the trial is about"}
        if what == "activate":
            body["accept_change"] = True
        answer = self._ask("moves", http, "POST", f"/v1/models/{self._subject.model}/{path}", json=body, headers=match)
        # 412: a refit was faster; 409: there is nothing to roll back to.
        if self._expected(answer, 200, 412, *((409,) if what == "rollback" else ())) and answer.status_code == 200:
            self._ledger.acknowledged["moves"].append((answer.json()["epoch"], answer.json()["active"]))

    def _upload(self, http: httpx.Client, draw: random.Random) -> None:
        time.sleep(draw.uniform(0, 0.3))
        which = np.array([draw.randrange(len(self._names)) for _ in range(SET_ROWS)])
        stream = io.BytesIO()
        rows = {name: values[which] for name, values in self._subject.columns.items()}
        np.savez(stream, label=np.array(self._names)[which], **rows)
        headers = {"content-type": "application/x-npz"}
        path = f"/v1/models/{self._subject.model}/labelled-sets"
        answer = self._ask("sets", http, "POST", path, content=stream.getvalue(), headers=headers)
        # The supervisor was killed, and its worker stops before it has checked the rows.
        stopping = answer.status_code == 503 and "The service is stopping." in answer.text
        if not stopping and self._expected(answer, 201):
            self._ledger.acknowledged["sets"].append(answer.json()["id"])
