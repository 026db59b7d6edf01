"""A worker's process, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from bundle.processors import thread_limits

_LONGEST_LINE: Final = 64 << 20  # bytes; the metrics of many models


class Worker:
    """One worker: its process, its channel, and the connections that it was given.

    Args:
        number: From 1; the first is the leader.
        threads: Threads of its numerical libraries, unless the environment limits them.

    Attributes:
        member: Whether it takes connections and questions.
        joined: Whether it has been a member before, in any of its processes.
        given: Number of the hand-over, among all workers, that it got last.
        unanswered: Pings since it last answered one.
    """

    def __init__(self, number: int, threads: int) -> None:
        self.number = number
        self._environment = thread_limits(threads) | os.environ
        self.member = False
        self.joined = False
        self.given = self.unanswered = 0
        self._handed = self._closed = 0
        self._process: asyncio.subprocess.Process | None = None
        self._connections: socket.socket | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def open(self) -> int:
        """Connections that it has, as last heard."""
        return self._handed - self._closed

    async def start(self, first: Mapping[str, Any], inherited: Sequence[int]) -> AsyncIterator[dict[str, Any]]:
        """Start its process and yield the messages of that.

        Args:
            first: First message to it.
            inherited: Further open files that the process keeps open.
        """
        self._handed = self._closed = self.unanswered = 0
        control, control_there = socket.socketpair()
        self._connections, connections_there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connections.setblocking(False)
        with control_there, connections_there:
            descriptors = control_there.fileno(), connections_there.fileno()
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "service.commands.worker", *map(str, descriptors)),
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environment,
                pass_fds=(*descriptors, *inherited),
                process_group=0,  # a terminal's Ctrl-C is the supervisor's to hand on
            )
        reader, self._writer = await asyncio.open_unix_connection(sock=control, limit=_LONGEST_LINE)
        self.send(first)
        try:
            while (line := await reader.readline()).endswith(b"\n"):  # a process that is killed may leave a part of one
                yield json.loads(line)
        except OSError:
            return

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; one to a process that has ended is lost."""
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    def hand(self, client: socket.socket, number: int) -> bool:
        """Hand a connection over; return False if the worker cannot take it now."""
        if self._connections is None:
            return False
        try:
            socket.send_fds(self._connections, [b"c"], [client.fileno()])
        except OSError:
            return False
        self._handed += 1
        self.given = number
        return True

    def heard_closed(self, connections: int) -> None:
        """Note how many of its connections are closed."""
        self._closed = connections

    def drain(self) -> None:
        """Give it no more connections; it then answers what it has and ends."""
        self.member = False
        if self._connections is not None:
            self._connections.close()
            self._connections = None

    def stop(self) -> None:
        """Ask a process that is not a member yet to end."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        """End its process at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def end(self) -> int:
        """Wait for the end of its process and return the exit status, negative for a signal."""
        if self._process is None:
            return 0
        status = await self._process.wait()
        self.drain()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        return status
