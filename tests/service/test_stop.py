"""A stop in two steps: unready while everything is answered, then the end."""

from __future__ import annotations

import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.children import freeze
from tests.waiting import PATIENCE_S, until

from .conftest import Spawn
from .workers.test_workers import children


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_that_stops_is_unready_and_sends_its_clients_elsewhere(
    spawn: Spawn, digits: Any, workers: str
) -> None:
    service = spawn(workers=workers, threads="1", stop_delay_s="600")
    until(lambda: service.http.get("/readyz").status_code == 200)
    body = {"inputs": digits.dimmed[:1].tolist()}
    assert "connection" not in service.http.post("/predict", json=body).headers

    service.popen.send_signal(signal.SIGTERM)
    until(lambda: service.http.get("/readyz").status_code == 503)
    assert service.http.get("/livez").status_code == 200
    with httpx.Client(base_url=service.url, timeout=PATIENCE_S) as new:
        answer = new.post("/predict", json=body)
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")

    service.popen.send_signal(signal.SIGTERM)  # at once
    status, said = service.end()
    assert status == 0, said


@pytest.fixture
def terminal() -> Iterator[None]:
    """Programs hear of the end of their terminal, also where the tests were started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_end_of_a_terminal_is_a_stop_that_writes_the_log(
    spawn: Spawn, digits: Any, tmp_path: Path, workers: str
) -> None:
    service = spawn(workers=workers, threads="1")
    body = {"inputs": digits.dimmed[:64].tolist()}
    assert service.http.post("/predict", json=body).status_code == 200
    service.popen.send_signal(signal.SIGHUP)
    service.popen.send_signal(signal.SIGHUP)  # the kernel's, and the shell's
    status, said = service.end()
    assert status == 0, said
    with sqlite3.connect(tmp_path / "state.db") as state:
        assert state.execute("SELECT count(*) FROM predictions").fetchone() == (64,)


@pytest.mark.parametrize("path", ["/predict", "/feedback"])  # without ASGI, and with it
def test_a_stop_does_not_wait_for_a_body(spawn: Spawn, path: str) -> None:
    service = spawn(drain_timeout_s=f"{10 * PATIENCE_S}", client_timeout_s=f"{10 * PATIENCE_S}")
    url = httpx.URL(service.url)
    with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as stalled:
        head = f"POST {path} HTTP/1.1", f"host: {url.host}", "content-type: application/json", "content-length: 1000"
        stalled.sendall("\r\n".join([*head, "", "{"]).encode())
        assert service.http.get("/livez").status_code == 200  # after it was read
        service.popen.send_signal(signal.SIGTERM)
        answer = b"".join(iter(lambda: stalled.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 503 "), answer
    assert b"\r\nconnection: close\r\n" in answer
    status, said = service.end()
    assert status == 0, said


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_an_upload_that_a_stop_cuts_off_is_unavailable_not_an_error(spawn: Spawn) -> None:
    service = spawn(drain_timeout_s="1")

    def checking() -> int | None:
        commands = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children(service.popen.pid)}
        return next((child for child, command in commands.items() if b"row_files.check" in command), None)

    with ThreadPoolExecutor() as beside:
        sets, csv = "/v1/models/digits/labelled-sets", {"content-type": "text/csv"}
        upload = beside.submit(service.http.post, sets, content=b"label\nx\n", headers=csv)
        freeze(until(checking))
        service.popen.send_signal(signal.SIGTERM)
        answer = upload.result()
    assert (answer.status_code, answer.json()["detail"]) == (503, "The service is stopping."), answer.text
    assert "retry-after" in answer.headers
    status, said = service.end()
    assert status == 0, said


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_delay_of_a_stop_ends(spawn: Spawn, workers: str) -> None:
    service = spawn(workers=workers, threads="1", stop_delay_s="0.01")
    service.popen.send_signal(signal.SIGTERM)
    status, said = service.end()
    assert status == 0, said
