"""Requests to servers that take their time: each ends when its time does."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from bundle import Upstream
from bundle.upstream_client import CallFailedError, UpstreamClient

HEAD = b"HTTP/1.1 200 OK\r\nx-padding: "
TIME_S = 0.2


def drip(connection: socket.socket, begun: bytes) -> None:
    """Send a byte every few milliseconds, far more often than any read gives up."""
    connection.sendall(begun)
    while True:
        connection.sendall(b"1")
        time.sleep(0.01)


def head(connection: socket.socket) -> None:
    drip(connection, HEAD)


def body(connection: socket.socket) -> None:
    drip(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n")


def notices(connection: socket.socket) -> None:
    """Announce an answer for ever."""
    while True:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.01)


def sips(connection: socket.socket) -> None:
    """Read the request a little at a time."""
    while connection.recv(500):
        time.sleep(0.01)


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    with contextlib.ExitStack() as stack:

        def run(behave: Callable[[socket.socket], None]) -> str:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

            open_ones = [listener]

            def answer() -> None:
                with contextlib.suppress(OSError), listener.accept()[0] as connection:
                    open_ones.append(connection)
                    behave(connection)

            def end() -> None:
                for each in open_ones:  # wakes a thread that still waits for a client, or reads on
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                thread.join()

            thread = threading.Thread(target=answer)
            thread.start()
            stack.callback(end)
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

        yield run


@pytest.mark.parametrize(("behave", "rows"), [(head, 1), (body, 1), (notices, 1), (sips, 300_000)])
def test_a_server_that_drips_is_given_up_in_time(
    serve: Callable[..., str], behave: Callable[[socket.socket], None], rows: int
) -> None:
    client = UpstreamClient(Upstream(url=serve(behave), model="m", version="1", metadata="0" * 64))
    feeds = {"x": np.zeros((rows, 8), np.float32)}
    began = time.monotonic()
    with pytest.raises(CallFailedError) as failed:
        client.infer(feeds, "p", largest=10**6, until=began + TIME_S)
    took = time.monotonic() - began
    client.close()
    assert failed.value.kind == "slow"
    assert took < 50 * TIME_S  # without the bound it takes as long as the server likes
