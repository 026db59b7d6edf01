"""10,000 hostile requests against a running service, while another client predicts: what breaks, what slows down?

python -m tests.hardening.hostile --bodies 10000

Four clients send them over connections of their own, one after the other. Prints one JSON document: statuses by kind,
quantiles of the other client's latency before, during and after, and how the service's memory grew. Exits with 1 where
an answer has a status of 5xx or is not JSON, a request that asks for one gets none, the other client was refused, the
service ended, or its log has an error.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from tests.hardening.bodies import Hostile, draw
from tests.hardening.running import Running
from tests.hardening.trial import trial

_CLIENTS: Final = 4
_PATIENCE_S: Final = 60.0
_CHUNK: Final = 65_536
_SAMPLE_S: Final = 0.25


@dataclass
class Outcome:
    """What came of hostile requests.

    Attributes:
        statuses: How often each came, by kind; 0 where a request that lies about its length got no answer.
        wrong: Answers that should not be, the first few.
        memory: Requests that had been sent, and bytes that the service had resident then.
        took_s: Seconds.
    """

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)
    took_s: float = 0.0

    def growth(self) -> dict[str, float]:
        """Return how the memory of the service grew, in MB: in all, and for 1,000 requests in the second half."""
        sent, resident = np.array(self.memory, dtype=float).T
        late = sent >= sent[-1] / 2
        slope = np.polyfit(sent[late], resident[late], 1)[0] if late.sum() > 2 else 0.0
        mb = resident / 1e6
        return {"before": mb[0], "largest": mb.max(), "after": mb[-1], "per_1000_in_second_half": slope * 1000 / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of the other client alone, before and after")
    arguments = parser.parse_args()
    outcome, others, unharmed = trial(
        lambda running: attack(running, arguments.bodies, arguments.seed), idle_s=arguments.idle
    )
    document = {
        "requests": arguments.bodies,
        "clients": _CLIENTS,
        "took_s": round(outcome.took_s, 1),
        "statuses": {kind: dict(sorted(counts.items())) for kind, counts in sorted(outcome.statuses.items())},
        "wrong": outcome.wrong,
        "resident_mb": {name: round(value, 2) for name, value in outcome.growth().items()},
        **others,
    }
    print(json.dumps(document, indent=1))
    refused = any(status >= 500 for counts in outcome.statuses.values() for status in counts)
    sys.exit(bool(outcome.wrong or refused or not unharmed))


def attack(running: Running, count: int, seed: int, *, without: Collection[str] = ()) -> Outcome:
    """Send hostile requests of all kinds but some, and look at each answer."""
    outcome = Outcome()
    todo: SimpleQueue[tuple[str, Hostile]] = SimpleQueue()
    lock, sent, over = threading.Lock(), 0, threading.Event()

    def send_on() -> None:
        nonlocal sent
        while not over.is_set() or not todo.empty():
            with suppress(Empty):
                kind, request = todo.get(timeout=0.05)
                status, wrong = exchange(running, request)
                with lock:
                    sent += 1
                    outcome.statuses.setdefault(kind, Counter())[status] += 1
                    if wrong and len(outcome.wrong) < 20:
                        outcome.wrong.append(f"{kind}: {request.method} {request.path[:80]}: {wrong}")

    def watch() -> None:
        while True:
            ended = over.wait(_SAMPLE_S) and all(not thread.is_alive() for thread in threads)
            outcome.memory.append((sent, running.resident_bytes))
            if ended:
                return

    outcome.memory.append((0, running.resident_bytes))
    threads = [threading.Thread(target=send_on) for _ in range(_CLIENTS)]
    watcher = threading.Thread(target=watch, daemon=True)
    began = time.monotonic()
    for thread in [*threads, watcher]:
        thread.start()
    for item in draw(seed, count, without=without):
        while todo.qsize() > 2 * _CLIENTS:
            time.sleep(0.001)
        todo.put(item)
    over.set()
    for thread in threads:
        thread.join()
    watcher.join()
    outcome.took_s = time.monotonic() - began
    return outcome


def exchange(running: Running, request: Hostile, *, patience_s: float = _PATIENCE_S) -> tuple[int, str | None]:
    """Send one request over a connection of its own; returns the status, and what is wrong with the answer."""
    address = urlsplit(running.url)
    answer = bytearray()
    with socket.create_connection((address.hostname, address.port), timeout=patience_s) as connection:
        with suppress(OSError):  # it may answer, and close, before it has all
            connection.sendall(_head(request, running.headers))
            for start in range(0, len(request.body), _CHUNK):
                piece = request.body[start : start + _CHUNK]
                connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if request.length == "chunked" else piece)
            if request.length == "chunked":
                connection.sendall(b"0\r\n\r\n")
            if request.length not in (None, "chunked"):
                connection.shutdown(socket.SHUT_WR)
        try:
            while piece := connection.recv(_CHUNK):
                answer += piece
        except ConnectionResetError:
            pass
        except TimeoutError:
            return 0, f"no answer within {patience_s:g} s"
    return judge(bytes(answer), request)


def judge(answer: bytes, request: Hostile) -> tuple[int, str | None]:
    """Return the status of what was answered, and what is wrong with it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 "):
        may_be_silent = request.length is not None or len(request.body) > 1 << 20  # reset while it still sent
        return 0, None if may_be_silent and not head else f"no answer: {answer[:80]!r}"
    status = int(head[9:12])
    if status >= 500 and status not in (503, 504):  # a service with too much to do says so
        return status, f"{head[:200]!r} {body[:300]!r}"
    if status < 400 or request.method == "HEAD" or b"text/html" in head or request.length not in (None, "chunked"):
        return status, None
    if b"transfer-encoding: chunked" in head:
        body = body.partition(b"\r\n")[2]
    try:
        document = json.loads(body)
    except ValueError:
        return status, f"no JSON: {head[:300]!r} {body[:100]!r}"
    return status, None if {"type", "error"} & set(document) else f"no problem: {body[:200]!r}"


def _head(request: Hostile, headers: dict[str, str]) -> bytes:
    lines: dict[str, Any] = {"host": "localhost", "connection": "close"} | headers | request.headers
    if request.length == "chunked":
        lines["transfer-encoding"] = "chunked"
    else:
        lines["content-length"] = len(request.body) if request.length is None else request.length
    text = f"{request.method} {request.path} HTTP/1.1\r\n"
    return (text + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n").encode("latin-1")


if __name__ == "__main__":
    main()
