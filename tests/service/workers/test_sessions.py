"""Sessions of the dashboard outlive the workers of a service, and not the service."""

from __future__ import annotations

import os
import re
import signal

import httpx

from service.state.database import Database
from service.state.keys import KeyStore
from tests.waiting import PATIENCE_S, until

from ..conftest import Process, Spawn
from .test_workers import WORKERS, children, leader


def log_in(service: Process, key: str) -> str:
    """Return a session's cookie."""
    with httpx.Client(base_url=service.url, timeout=PATIENCE_S) as browser:
        token = re.search(r'name="token" value="(\w+)"', browser.get("/dashboard/login").text)
        assert token
        form = {"key": key, "token": token[1], "next": "/dashboard"}
        answer = browser.post("/dashboard/login", data=form, headers={"sec-fetch-site": "same-origin"})
        assert answer.status_code == 303, answer.text
        return answer.headers["set-cookie"].partition(";")[0]


def visit(service: Process, cookie: str) -> int:
    """Return the status of the front page, over a connection of its own, which any worker may get."""
    return httpx.get(f"{service.url}/dashboard", headers={"cookie": cookie}, timeout=PATIENCE_S).status_code


def test_sessions_outlive_every_worker_and_end_with_a_restart(spawn: Spawn) -> None:
    database = Database.open(spawn.environment["CANDOR_DATABASE_URL"])
    _, key = KeyStore(database).create("guest", ["predict"])
    database.close()
    service = spawn(workers=str(WORKERS))
    until(lambda: service.http.get("/readyz").status_code == 200)
    cookie = log_in(service, key)
    first = leader(service)
    for worker in (first, *({*children(service.popen.pid)} - {first})):
        os.kill(worker, signal.SIGKILL)
        until(lambda gone=worker: gone not in children(service.popen.pid))
        until(lambda: len(children(service.popen.pid)) == WORKERS)
        until(lambda: service.http.get("/readyz").status_code == 200)
    assert {visit(service, cookie) for _ in range(4 * WORKERS)} == {200}
    service.popen.terminate()
    assert service.end()[0] == 0
    restarted = spawn(workers=str(WORKERS))
    until(lambda: restarted.http.get("/readyz").status_code == 200)
    assert {visit(restarted, cookie) for _ in range(4 * WORKERS)} == {303}
    assert visit(restarted, log_in(restarted, key)) == 200
