"""A stop in two steps: unready while everything is answered, then the end."""

from __future__ import annotations

import signal
import socket
from typing import Any

import httpx
import pytest

from tests.waiting import PATIENCE_S, until

from .conftest import Spawn


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


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_delay_of_a_stop_ends(spawn: Spawn, workers: str) -> None:
    service = spawn(workers=workers, threads="1", stop_delay_s="0.01")
    service.popen.send_signal(signal.SIGTERM)
    status, said = service.end()
    assert status == 0, said
