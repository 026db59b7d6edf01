"""Close gRPC connections beyond the maximum from one address.

gRPC accepts connections by itself, limits only their total, and tells nobody who is connected until a call comes. So
the connections are found among the open files of this process; there is no other way to see them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from typing import Final

import structlog

logger = structlog.get_logger(__name__)

_EVERY_S: Final = 1.0

_Peer = tuple[str, int]


class ConnectionsByAddress:
    """Looks at the connections of a port every second.

    Args:
        port: The gRPC port.
        most: Maximum open connections from one address.
    """

    def __init__(self, port: int, most: int) -> None:
        self._port = port
        self._most = most
        self._known: set[_Peer] = set()

    async def watch(self) -> None:
        """Close what is too much, until cancelled."""
        while True:
            try:
                if closed := await asyncio.to_thread(self.close_excess):
                    logger.warning("closed gRPC connections: too many from one address", connections=closed)
            except OSError as error:  # too many files are open to list them
                logger.warning("gRPC connections cannot be counted", error=str(error))
            await asyncio.sleep(_EVERY_S)

    def close_excess(self) -> dict[str, int]:
        """Close the newest connections of each address that has too many; return how many, by address."""
        found = self._connections()
        self._known &= found.keys()
        counts = Counter(address for address, _ in self._known)
        closed: Counter[str] = Counter()
        for peer, file in found.items():
            if peer in self._known:
                continue
            if counts[peer[0]] < self._most:
                counts[peer[0]] += 1
                self._known.add(peer)
            elif self._close(file, peer):
                closed[peer[0]] += 1
        return dict(closed)

    def _connections(self) -> dict[_Peer, int]:
        found = {}
        for name in os.listdir("/dev/fd"):  # noqa: PTH208 — thousands, as plain names
            if (peer := self._peer(int(name))) is not None:
                found[peer] = int(name)
        return found

    def _peer(self, file: int) -> _Peer | None:
        """Return who is connected to the port through an open file; None if it is another file."""
        with contextlib.suppress(OSError):  # not a socket, closed by now, or not connected
            seen = _as_socket(file)
            try:
                own = seen.getsockname()
                if isinstance(own, tuple) and own[1] == self._port:
                    address, port = seen.getpeername()[:2]
                    return address.removeprefix("::ffff:"), port
            finally:
                seen.detach()
        return None

    def _close(self, file: int, peer: _Peer) -> bool:
        """End a connection. gRPC owns its file, and closes that when it reads the end."""
        with contextlib.suppress(OSError):
            copy = os.dup(file)  # whose connection does not change any more, even if gRPC closes and reuses `file`
            try:
                if self._peer(copy) == peer:
                    ended = _as_socket(copy)
                    try:
                        ended.shutdown(socket.SHUT_RDWR)
                    finally:
                        ended.detach()
                    return True
            finally:
                os.close(copy)
        return False


def _as_socket(file: int) -> socket.socket:
    """Return an open file as a socket. The family is not asked of the file; addresses that are read have their own."""
    return socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=file)
