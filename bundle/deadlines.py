"""Connections whose every operation ends by a point in time, however slowly the server sends or reads.

An HTTP client bounds the time of each read. A server that sends a byte a second passes each of them, and holds the
request as long as it likes.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore


class DeadlineBackend(httpcore.NetworkBackend):
    """Open connections that read each timeout as an end of time, on the clock of `time.monotonic`.

    A pool passes the timeouts of a request on unchanged, so that one end of time holds for all steps of the request.
    """

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that answers."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failed: httpcore.ConnectError | None = None
        for *_, address in found:
            left = _left(timeout, httpcore.ConnectTimeout)
            try:
                stream = self._backend.connect_tcp(str(address[0]), port, left, local_address, socket_options)
            except httpcore.ConnectError as error:
                failed = error
            else:
                return _DeadlineStream(stream)
        raise failed or httpcore.ConnectError(f"{host} has no address")


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        connection, rest = self._stream.get_extra_info("socket"), memoryview(buffer)
        while rest:
            connection.settimeout(_left(timeout, httpcore.WriteTimeout))
            try:
                rest = rest[connection.send(rest) :]
            except TimeoutError as error:
                raise httpcore.WriteTimeout(str(error)) from error
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(until: float | None, late: type[httpcore.TimeoutException]) -> float | None:
    """Return the seconds until an end of time; raises `late` after it."""
    if until is None:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise late("no time left")
    return left
