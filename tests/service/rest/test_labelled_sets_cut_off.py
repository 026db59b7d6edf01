"""Labelled sets when something goes wrong around them: clients that leave, crashes, other replicas."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.waiting import PATIENCE_S, until

from .test_labelled_sets import NPZ, SETS, left_in, made, npz, refit, upload


@pytest.mark.parametrize("path", [SETS, "/recalibrate", "/feedback"])
def test_a_client_that_leaves_in_the_middle_leaves_nothing_and_is_no_failure(service: Any, path: str) -> None:
    goes_to_disk = path != "/feedback"
    arrived = threading.Event()

    def half_a_body() -> Any:
        yield b"x" * (2 << 20 if goes_to_disk else 100)
        until(lambda: left_in(service) or not goes_to_disk)
        arrived.set()
        raise ConnectionAbortedError

    headers = {"content-type": NPZ if goes_to_disk else "text/csv", "content-length": str(4 << 20)}
    with pytest.raises(ConnectionAbortedError):
        httpx.post(f"{service.url}{path}", content=half_a_body(), headers=headers, timeout=PATIENCE_S)
    assert arrived.is_set()
    until(lambda: service.metric("candor_http_requests_total", status="499"))
    assert service.metric("candor_http_requests_total", status="500") == 0
    assert left_in(service) == []
    assert service.http.get(SETS).json() == {"items": []}


def test_a_service_that_is_killed_while_it_stores_a_set_leaves_no_half_of_it(
    spawn: Any, digits: Any, tmp_path: Path
) -> None:
    rows = 500_000
    body = npz(label=np.full(rows, "7"), logits=np.zeros((rows, 10), dtype=np.float32))
    service = spawn()

    def send() -> None:
        with suppress(httpx.TransportError):
            upload(service, body)

    sender = threading.Thread(target=send)
    sender.start()
    with closing(sqlite3.connect(tmp_path / "state.db", timeout=PATIENCE_S)) as state:

        def stored() -> int:
            (count,) = state.execute("SELECT count(*) FROM (SELECT 1 FROM labelled_rows LIMIT 1)").fetchone()
            return int(count)

        began = time.monotonic()
        while not stored():  # `until` asks too seldom by now: storing takes a tenth of a second
            assert time.monotonic() - began < PATIENCE_S
            time.sleep(0.001)
        service.kill()
        sender.join(PATIENCE_S)
        assert state.execute("SELECT whole FROM labelled_sets").fetchall() == [(0,)], "killed too late to be a test"
        assert stored() > 0
        assert list((tmp_path / "uploads").iterdir())

        again = spawn()
        assert stored() == 0
        assert list((tmp_path / "uploads").iterdir()) == []
        assert again.http.get(SETS).json() == {"items": []}
        made(upload(again, npz(label=np.array(["7"]), logits=np.zeros((1, 10)))))
        assert stored() == 1


def test_a_set_is_uploaded_at_one_replica_and_refitted_at_another(spawn: Any, digits: Any, postgresql_url: str) -> None:
    first, second = (spawn(wait=False, database_url=postgresql_url) for _ in range(2))
    for replica in (first, second):
        replica.wait_until_it_listens()
    found = made(upload(first, npz(label=np.array(digits.labels), inputs=digits.dimmed), represents="traffic"))
    assert second.http.get(SETS).json()["items"] == [found]
    answer = refit(second, found["id"], mode="propose", calibrator="temperature")
    assert answer["gate"]["passed"], answer["summary"]
    assert first.http.get(f"/v1/models/digits/revisions/{answer['revision']}").status_code == 200
