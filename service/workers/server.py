"""uvicorn's server for a worker: connections come from the supervisor, and its word ends it."""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn

from service.workers.team import Team

_FDS: Final = 4  # of a message; the supervisor sends one


class WorkerServer(uvicorn.Server):
    """Serve connections that the supervisor has accepted, until it closes the socket that they come through.

    Args:
        config: uvicorn's.
        team: This worker's channel.
        stop_loading: Ends the proofs of new bundles: no stop waits for one.
    """

    def __init__(self, config: uvicorn.Config, team: Team, stop_loading: Callable[[], None]) -> None:
        super().__init__(config)
        self._team = team
        self._stop_loading = stop_loading
        self._taken = self._closed = 0
        self._made_by: Any = None  # the class of a connection, once uvicorn has it
        self._connecting: set[asyncio.Task[None]] = set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's
        """Ask for no more connections; their end then ends this worker."""
        self._stop_loading()
        self._team.leave()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  # uvicorn's
        """Start the application, and take connections."""
        await super().startup(sockets=[])
        self._made_by = self.config.http_protocol_class
        self._team.connections.setblocking(False)
        asyncio.get_running_loop().add_reader(self._team.connections, self._take)

    async def on_tick(self, counter: int) -> bool:
        """Tell the supervisor how many connections are closed, where that has changed."""
        closed = self._taken - self._open
        if closed != self._closed:
            self._closed = closed
            self._team.closed(closed)
        return await super().on_tick(counter)

    @property
    def _open(self) -> int:
        return len(self._connecting) + len(self.server_state.connections)

    def _take(self) -> None:
        while True:
            try:
                data, received = _received(self._team.connections)
            except BlockingIOError:
                return
            except OSError:
                data, received = b"", []
            if not data:
                asyncio.get_running_loop().remove_reader(self._team.connections)
                self._stop_loading()
                self.should_exit = True
                return
            for descriptor in received:
                self._taken += 1
                client = socket.socket(fileno=descriptor)
                # uvicorn does not count handshakes as connections, so clients that never begin one could use all files.
                if self.config.ssl is not None and self._open >= self._made_by.most:
                    client.close()
                    continue
                task = asyncio.create_task(self._connect(client))
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)

    async def _connect(self, client: socket.socket) -> None:
        client.setblocking(False)
        context = self.config.ssl
        timeout_s = None if context is None else self._made_by.timeout_s
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, client, ssl=context, ssl_handshake_timeout=timeout_s
            )
        except OSError:  # the client is gone already, or its handshake failed
            client.close()

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self._made_by(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


def _received(connections: socket.socket) -> tuple[bytes, list[int]]:
    """Return what the supervisor has sent: a byte, and open files that no child of this process inherits.

    A child, of a recalibration say, would keep the connections of this process open: their clients would send requests
    that nobody reads. `socket.recv_fds` takes no flags, and uvloop closes nothing in a child.
    """
    files = array.array("i")
    space = socket.CMSG_LEN(_FDS * files.itemsize)
    data, parts, _, _ = connections.recvmsg(1, space, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    for level, kind, content in parts:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    for file in files:  # where the system has no such flag
        os.set_inheritable(file, False)
    return data, list(files)
