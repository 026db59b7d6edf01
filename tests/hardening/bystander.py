"""Another client, in a process of its own, that predicts all the time while someone is unkind to the service."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import httpx
import numpy as np

_BODY = {"inputs": [np.arange(64).reshape(8, 8, 1).tolist()]}
_PAUSE_S = 0.005
_PATIENCE_S = 60.0

Latencies = list[tuple[float, float]]
"""When each prediction was asked for, as `time.monotonic` has it, and the seconds until its answer."""


class Bystander:
    """What the client has seen, once it has ended.

    Attributes:
        latencies: Of its predictions.
        failures: What came instead of a prediction.
    """

    def __init__(self) -> None:
        self.latencies: Latencies = []
        self.failures: list[str] = []

    @property
    def faults(self) -> list[str]:
        """Those failures that too much to do does not excuse: all but 503 and 504."""
        return [failure for failure in self.failures if not failure.startswith(("503 ", "504 "))]

    def between(self, first: float, last: float) -> dict[str, float]:
        """Return how many predictions were asked for between two times, and quantiles of their seconds."""
        seconds = np.array([took for began, took in self.latencies if first <= began < last])
        p50, p99, largest = np.quantile(seconds, [0.5, 0.99, 1.0])
        return {"predictions": len(seconds), "p50_s": float(p50), "p99_s": float(p99), "max_s": float(largest)}


@contextmanager
def predicting(url: str, headers: dict[str, str] | None = None) -> Iterator[Bystander]:
    """Let another client predict, one row after the other, for as long as the block lasts; then it can be asked."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stop = context.Event()
    process = context.Process(target=_predict, args=(url, headers or {}, stop, theirs), daemon=True)
    process.start()
    theirs.close()  # else nobody would notice that the process has died
    bystander = Bystander()
    try:
        _told(ours)  # it has its first answer
        yield bystander
        stop.set()
        bystander.latencies, bystander.failures = _told(ours)
    finally:
        stop.set()
        ours.close()
        process.join(_PATIENCE_S)


def _told(by: Connection) -> Any:
    if not by.poll(2 * _PATIENCE_S):
        raise TimeoutError("the other client says nothing")
    return by.recv()  # EOFError where it has died


def _predict(url: str, headers: dict[str, str], stop: Event, to: Connection) -> None:
    latencies: Latencies = []
    failures: list[str] = []
    with httpx.Client(base_url=url, headers=headers, timeout=_PATIENCE_S) as client:
        client.post("/predict", json=_BODY)
        to.send(None)
        while not stop.is_set():
            began = time.monotonic()
            try:
                response = client.post("/predict", json=_BODY)
                if response.status_code == 200:
                    latencies.append((began, time.monotonic() - began))
                else:
                    failures.append(f"{response.status_code} {response.text[:200]}")
            except httpx.TransportError as error:
                failures.append(repr(error))
            time.sleep(_PAUSE_S)
    to.send((latencies, failures))
