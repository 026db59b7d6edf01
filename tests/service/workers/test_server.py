"""A worker's server, by itself."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn

from service.workers.server import WorkerServer
from service.workers.tls import Certificates
from tests.service.authority import Authority


def test_no_stop_of_a_worker_waits_for_a_proof() -> None:
    here, there = socket.socketpair()
    ended: list[str] = []
    team: Any = SimpleNamespace(connections=here, leave=lambda: ended.append("left"))

    async def run() -> None:
        server = WorkerServer(uvicorn.Config("none:none"), team, lambda: ended.append("proofs"))
        asyncio.get_running_loop().add_reader(here, server._take)
        there.close()  # the supervisor's word
        while not server.should_exit:  # noqa: ASYNC110 — a flag of uvicorn's
            await asyncio.sleep(0)
        assert ended == ["proofs"]
        server.handle_exit(signal.SIGTERM, None)
        assert ended == ["proofs", "proofs", "left"]

    with here:
        asyncio.run(run())


class Connection(asyncio.Protocol):
    most, timeout_s = 1, 0.2

    def __init__(self, **_: Any) -> None:
        pass


def test_handshakes_that_are_never_begun_count_and_end(tmp_path: Path) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here.setblocking(False)
    team: Any = SimpleNamespace(connections=here, leave=lambda: None)
    listener = socket.create_server(("127.0.0.1", 0))

    async def run() -> None:
        server = WorkerServer(uvicorn.Config("none:none"), team, lambda: None)
        server.config.ssl = Certificates(*Authority(tmp_path).issue("server")).context
        server._made_by, server.lifespan = Connection, SimpleNamespace(state={})  # type: ignore[assignment]
        readers = []
        for _ in range(2):
            readers.append(await asyncio.open_connection(*listener.getsockname()))
            with listener.accept()[0] as accepted:
                socket.send_fds(there, [b"c"], [accepted.fileno()])
            server._take()
        assert server._open == 1
        assert await readers[1][0].read() == b"", "the second is one too many"
        await readers[0][0].read()  # ends with the time for its handshake
        while server._connecting:  # noqa: ASYNC110 — its task ends a moment later
            await asyncio.sleep(0)
        assert server._open == 0
        for _, writer in readers:
            writer.close()

    with here, there, listener:
        asyncio.run(asyncio.wait_for(run(), 60))
