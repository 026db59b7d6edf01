"""Clients that keep the service waiting, or ask for too much of it, on a real connection."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from service.operations import access as operations
from service.rest import access, connections, paths
from service.state.keys import KeyStore
from tests.waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def impatient(module_spawn: Callable[..., Any]) -> Any:
    """A service that waits for no client longer than half a second."""
    return module_spawn(client_timeout_s="0.5", max_connections="40")


def connect(service: Any) -> socket.socket:
    host, port = service.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def until_closed(client: socket.socket) -> bytes:
    """Everything that the service still says; ends when it closes the connection."""
    parts = []
    try:
        while part := client.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


HEAD = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        b"GET /livez HT",
        HEAD,
        HEAD + b"content-length: 1000\r\n\r\n{",
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\n{",
        HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nx-trailer: 1",
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\nGET /livez HTTP/1.1\r\nhost: loc",
    ],
    ids=["nothing", "line ends", "request line", "head", "body", "chunk", "trailers", "the second of two"],
)
def test_a_request_that_does_not_come_is_given_up(impatient: Any, sent: bytes) -> None:
    with closing(connect(impatient)) as client:
        client.sendall(sent)
        said = until_closed(client)
    assert b"HTTP/1.1 408 Request Timeout" in said
    assert b"/errors/timeout" in said
    assert impatient.http.get("/livez").status_code == 200


@pytest.mark.parametrize(
    "sent",
    [b"BREW / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", HEAD + b"content-length: -1\r\n\r\n"],
    ids=["no method", "TLS", "a length below zero"],
)
def test_what_is_no_http_is_said_to_be_none(impatient: Any, sent: bytes) -> None:
    with closing(connect(impatient)) as client:
        client.sendall(sent)
        head, _, body = until_closed(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body) == {
        "type": "/errors/malformed-request",
        "title": "The request is not valid HTTP.",
        "status": 400,
    }


@pytest.mark.parametrize("drop", [b"\r\n", b"x"], ids=["line ends", "a header"])
def test_a_drop_now_and_then_helps_nobody(impatient: Any, drop: bytes) -> None:
    begun = b"" if drop == b"\r\n" else b"GET /livez HTTP/1.1\r\nx: "
    give_up = time.monotonic() + PATIENCE_S
    with closing(connect(impatient)) as client:
        client.sendall(begun)
        try:
            while time.monotonic() < give_up:
                client.sendall(drop)
                client.settimeout(0.05)
                try:
                    said = client.recv(65_536)
                except TimeoutError:
                    continue
                break
            else:
                pytest.fail("the connection is still open")
        except (BrokenPipeError, ConnectionResetError):
            return
    assert b"408" in said


@pytest.mark.parametrize(
    ("before", "endless"),
    [
        (b"GET /livez HTTP/1.1\r\nx: ", b"a" * 65_536),
        (b"GET /livez HTTP/1.1\r\n", b"x: 1\r\n" * 10_000),
        (b"GET /", b"a" * 65_536),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nx: ", b"a" * 65_536),
    ],
    ids=["a header", "headers", "a path", "a trailer"],
)
def test_an_endless_head_is_cut_off(impatient: Any, before: bytes, endless: bytes) -> None:
    sent = 0
    with closing(connect(impatient)) as client:
        client.sendall(before)
        try:
            while sent < 64 * 65_536:
                client.sendall(endless)
                sent += len(endless)
        except (BrokenPipeError, ConnectionResetError):
            pass
        said = until_closed(client)
    assert sent < 64 * 65_536, "all of it was taken"
    assert said == b"" or b" 431 " in said or b" 400 " in said


def test_a_large_head_that_comes_at_once_is_refused(impatient: Any) -> None:
    with closing(connect(impatient)) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b" 200 " in client.recv(65_536)
        client.sendall(HEAD + b"x: " + b"a" * 120_000 + b"\r\ncontent-length: 2\r\n\r\n{}")
        said = until_closed(client)
    assert said.startswith(b"HTTP/1.1 431 "), said[:100]
    assert said.count(b"HTTP/1.1 ") == 1
    with closing(connect(impatient)) as client:  # what is large is the body
        client.sendall(HEAD + b"content-length: 120000\r\nconnection: close\r\n\r\n" + b" " * 120_000)
        assert until_closed(client).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /livez HTTP/1.1\r\n", b"400"),
        (b"POST /predict HTTP/1.1\r\ncontent-length: 2\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\nhost: elsewhere\r\n", b"400"),
        (b"GET /livez HTTP/1.0\r\n", b"200"),
    ],
    ids=["none", "none, with a body", "two", "none in 1.0"],
)
def test_a_request_names_one_host(impatient: Any, head: bytes, status: bytes) -> None:
    with closing(connect(impatient)) as client:
        client.sendall(head + b"connection: close\r\n\r\n" + b"{}" * (b"POST" in head))
        said = until_closed(client)
    assert said.split()[1] == status, said
    assert said.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", ["/v1/models", "/predict"])
def test_a_key_in_a_trailer_does_not_count(launch: Callable[..., Any], tmp_path: Path, path: str) -> None:
    service = launch(tmp_path)
    try:
        key = KeyStore(service.runtime.database).create("ann", ["admin"])[1]
        service.application._access.refresh()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n"
        with closing(connect(service)) as client:
            client.sendall(f"{head}\r\n2\r\n{{}}\r\n0\r\nauthorization: Bearer {key}\r\n\r\n".encode())
            assert until_closed(client).startswith(b"HTTP/1.1 401 ")
    finally:
        service.close()


def test_no_address_is_made_of_a_host(impatient: Any) -> None:
    for path in ("/docs/", "/docs", "/dashboard", "/v2/"):
        answer = impatient.http.get(path, headers={"host": "localhost:9"}, follow_redirects=False)
        assert "localhost:9" not in answer.headers.get("location", "")
        assert "localhost:9" not in answer.text


def test_a_client_that_does_not_read_its_answers_is_cut_off(impatient: Any) -> None:
    with closing(connect(impatient)) as client:
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 500)  # more than buffers hold
        gone = select.poll()
        gone.register(client, select.POLLRDHUP)
        assert gone.poll(PATIENCE_S * 1000), "the connection is still open"
    assert impatient.http.get("/livez").status_code == 200


def test_a_slow_but_steady_body_is_taken(impatient: Any) -> None:
    """Half a second, and one more for each 16 KiB: 64 KiB may take four and a half."""
    body = b'{"inputs": ' + b" " * 65_000
    with closing(connect(impatient)) as client:
        client.sendall(HEAD + f"content-length: {len(body)}\r\n\r\n".encode())
        for start in range(0, len(body), 6_500):
            client.sendall(body[start : start + 6_500])
            time.sleep(0.12)  # the subject: a client that takes longer than the time limit in all
        assert client.recv(65_536).startswith(b"HTTP/1.1 400 ")  # it was read whole, and is no JSON


def test_there_are_only_so_many_connections(impatient: Any) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(connect(impatient))) for _ in range(60)]
        said = [until_closed(client) for client in reversed(clients)]
    refused = [text for text in said if b" 503 " in text]
    assert 15 <= len(refused) <= 25
    assert all(b"connection: close" in text for text in refused)
    assert impatient.http.get("/livez").status_code == 200


def test_an_idle_connection_gives_way_to_a_new_one(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    service = start(max_connections=3)
    assert service.http.get("/livez").status_code == 200  # the third
    ask = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with ExitStack() as stack:
        idle, busy = (stack.enter_context(closing(connect(service))) for _ in range(2))
        for client in (idle, busy):
            client.sendall(ask)
            assert b" 200 OK" in client.recv(65_536)
        busy.sendall(ask[:10])
        refused = stack.enter_context(closing(connect(service)))
        assert b" 503 " in until_closed(refused), "none has been idle for long"
        monkeypatch.setattr(connections, "_SPARE_S", 0.0)
        for _ in range(2):
            new = stack.enter_context(closing(connect(service)))
            new.sendall(ask)
            assert b" 200 OK" in new.recv(65_536)
            new.sendall(ask[:10])
        assert until_closed(idle) == b""
        busy.sendall(ask[10:])
        assert b" 200 OK" in busy.recv(65_536)


def test_one_address_has_only_so_many_connections(start: Callable[..., Any]) -> None:
    service = start(max_connections_per_address=3)
    address = urlsplit(service.url).hostname, urlsplit(service.url).port

    def ask(client: socket.socket) -> bytes:
        client.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return client.recv(65_536)

    with ExitStack() as stack:
        clients = [socket.create_connection(address, PATIENCE_S, ("127.0.0.2", 0)) for _ in range(4)]
        for client in clients:
            stack.enter_context(client)
        assert all(b" 200 OK" in ask(client) for client in clients[:3])
        said = until_closed(clients[3])
        assert b" 503 " in said
        assert b"from this address" in said
        assert service.http.get("/livez").status_code == 200
        clients[0].close()
        with socket.create_connection(address, PATIENCE_S, ("127.0.0.2", 0)) as another:
            until(lambda: b" 200 OK" in ask(another), "a place that is free again")


def test_idle_slow_clients_do_not_slow_others(impatient: Any) -> None:
    with ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(closing(connect(impatient))).sendall(b"GET /livez HT")
        assert impatient.http.get("/livez").status_code == 200


def accepts(service: Any) -> bool:
    try:
        connect(service).close()
    except ConnectionError:
        return False
    return True


def test_a_stop_answers_the_request_that_is_on_its_way(spawn: Callable[..., Any]) -> None:
    service = spawn()
    with closing(connect(service)) as begun, closing(connect(service)) as idle:
        for client in (begun, idle):  # what the service has not accepted yet is the kernel's to refuse
            client.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 OK" in client.recv(65_536)
        begun.sendall(b"GET /livez HT")
        service.popen.terminate()
        until(lambda: not accepts(service))
        begun.sendall(b"TP/1.1\r\nhost: localhost\r\n\r\n")
        said = until_closed(begun)
        assert b"HTTP/1.1 200 OK\r\n" in said
        assert b"connection: close\r\n" in said
        assert b"HTTP/1.1" not in until_closed(idle)
    assert service.end()[0] == 0


@pytest.mark.parametrize("path", ["/livez", "/predict"], ids=["over ASGI", "without"])
def test_an_idle_connection_is_closed(path: str, shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared._server.config, "timeout_keep_alive", 0.1)
    method = b"GET" if path == "/livez" else b"POST"
    with closing(connect(shared)) as client:
        client.sendall(b"%b %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n" % (method, path.encode()))
        said = until_closed(client)
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" not in said


def test_clients_that_come_together_are_accepted_together(service: Any) -> None:
    """A turn of the event loop may run a batch, so a client must not wait for a turn of each client before it."""
    service.http.get("/livez")
    connections = service._server.server_state.connections
    loop = next(iter(connections)).loop
    open_in_turn: list[int] = []
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go.wait(PATIENCE_S)
        turn()

    def turn() -> None:
        open_in_turn.append(len(connections))
        if len(open_in_turn) < 100:
            loop.call_soon(turn)

    loop.call_soon_threadsafe(hold)
    assert held.wait(PATIENCE_S)
    before = len(connections)
    with ExitStack() as clients:
        for _ in range(16):
            clients.enter_context(closing(connect(service)))
        go.set()
        until(lambda: len(open_in_turn) == 100)
    waited = [count for count in open_in_turn if before < count < before + 16]
    assert open_in_turn[-1] == before + 16
    assert len(waited) <= 1, open_in_turn


def test_long_texts_of_clients_are_not_remembered() -> None:
    """Each of the caches would keep a thousand heads of 64 KiB."""
    remembered = [paths._predicts, paths._labels, access._needed, operations._names_loopback]
    before = [cache.cache_info().currsize for cache in remembered]
    path = f"/v1/models/{'m' * 1000}/feedback"
    assert paths.most_bytes(path) == 65_536
    assert paths.route_of({"path": path}) == "unmatched"
    assert access.needed_scope("POST", path) == "feedback"
    assert not operations.names_loopback(f"//localhost:{'8' * 1000}")
    assert [cache.cache_info().currsize for cache in remembered] == before
