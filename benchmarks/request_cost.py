"""Processor time of a request by part, in one process and without sockets.

    python -m benchmarks.request_cost [--connections 1 16 64] [--payloads npy "V2 JSON"] [--images 1] [--rounds 200]

The service is built as `candor serve` builds it, with the model of `benchmarks.serving`, its log and its counters.
Requests of `--images` images are fed to its connections by transports that go nowhere, a round at a time: one on each
connection, the next round when all have their answers. So system calls of sockets and the client are left out. Prints,
per request, the median of the processor time of the whole process and that of the event loop's thread; and then, from
further rounds with timers around them, the processor time of each part, without that of the parts that it calls.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from benchmarks.serving.formats import Request
from benchmarks.serving.model import LENET, prepare
from benchmarks.serving.servers import candor
from service.commands.process import application_of, uvicorn_options
from service.inference.batcher import Batcher
from service.inference.chain import Chain
from service.operations.predicting import Prediction
from service.rest.connections import Connection
from service.rest.direct import _Exchange
from service.serving.plane import Plane
from service.settings import Settings
from service.state.predictions import PredictionLog

PARTS: dict[str, tuple[tuple[type, str], ...]] = {
    "HTTP and the head": ((Connection, "data_received"),),
    "body": ((Prediction, "parse"),),
    "queue and batch": ((Plane, "begin"), (Batcher, "_hand_over")),
    "model and calibrator": ((Chain, "run"),),
    "decisions": ((Plane, "decide"),),
    "log": ((PredictionLog, "_write"),),
    "answer": ((Prediction, "written"),),
    "reply, count, log line": ((_Exchange, "_reply"),),
}


class Nowhere(asyncio.Transport):
    """A transport that counts answers and sends nothing."""

    def __init__(self, answered: Callable[[bytes], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._answered = answered

    def write(self, data: Any) -> None:
        """Count an answer."""
        self._answered(data)

    def is_closing(self) -> bool:
        """Return that it is open."""
        return False

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Timers:
    """Processor time of each part, without that of the parts that it calls."""

    def __init__(self) -> None:
        self.ns: dict[str, int] = defaultdict(int)
        self._inner = threading.local()

    def wrap(self, part: str, owner: type, name: str) -> None:
        """Time a method."""
        whole = getattr(owner, name)

        @functools.wraps(whole)
        def timed(*args: Any, **kwargs: Any) -> Any:
            outside, self._inner.ns = getattr(self._inner, "ns", 0), 0
            began = time.thread_time_ns()
            try:
                return whole(*args, **kwargs)
            finally:
                took = time.thread_time_ns() - began
                self.ns[part] += took - self._inner.ns
                self._inner.ns = outside + took

        setattr(owner, name, timed)


def message(request: Request) -> bytes:
    """Return a whole request."""
    headers = {"host": "localhost", "content-length": str(len(request.body)), **request.headers}
    lines = [f"POST {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + request.body


async def rounds(server: uvicorn.Server, request: bytes, connections: int, number: int) -> list[tuple[float, float]]:
    """Return the seconds of the process and of the loop's thread for each round.

    Raises:
        RuntimeError: An answer is not a success.
    """
    done, missing = asyncio.Event(), 0

    def answered(data: bytes) -> None:
        nonlocal missing
        if not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(repr(data[:300]))
        missing -= 1
        if not missing:
            done.set()

    made: Any = server.config.http_protocol_class
    opened = []
    for _ in range(connections):
        opened.append(made(server.config, server.server_state, server.lifespan.state))
        opened[-1].connection_made(Nowhere(answered))
    found = []
    for _ in range(number):
        missing = connections
        done.clear()
        process, thread = time.process_time(), time.thread_time()
        for one in opened:
            one.data_received(request)
        await done.wait()
        found.append((time.process_time() - process, time.thread_time() - thread))
    for one in opened:
        one.connection_lost(None)
    return found


async def measure(options: argparse.Namespace, folder: Path) -> None:
    """Print everything."""
    prepared = prepare(LENET, folder)
    settings = Settings(
        bundles=prepared.bundles,
        policies=prepared.policies,
        database_url=f"sqlite:///{folder}/state.db",
        uploads=folder / "uploads",
        threads=1,
        log_level="error",
    )
    application = application_of(settings)
    config = uvicorn.Config(application, **uvicorn_options(settings, application))
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.lifespan.startup()
    images = prepared.inputs[: options.images]
    requests = {name: message(candor(LENET).payloads[name].write(images)) for name in options.payloads}
    for timed in (False, True):
        timers = Timers()
        for part, methods in PARTS.items() if timed else ():
            for owner, name in methods:
                timers.wrap(part, owner, name)
        for payload, request in requests.items():
            for connections in options.connections:
                await rounds(server, request, connections, 20)  # to warm up
                timers.ns.clear()
                found = await rounds(server, request, connections, options.rounds)
                whole, loop = (1e6 * statistics.median(one) / connections for one in zip(*found, strict=True))
                where = f"{payload:8} {connections:3} connections"
                if timed:
                    each = {part: timers.ns[part] / options.rounds / connections / 1e3 for part in PARTS}
                    print(where, *(f"{part} {us:.1f}" for part, us in each.items()), sep="  ", flush=True)
                else:
                    print(f"{where}  process {whole:.1f}  loop {loop:.1f}", flush=True)
    await server.lifespan.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--payloads", nargs="*", default=["npy", "V2 JSON"])
    parser.add_argument("--images", type=int, default=1, help="images of a request")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("CANDOR_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(options, Path(folder)))


if __name__ == "__main__":
    main()
