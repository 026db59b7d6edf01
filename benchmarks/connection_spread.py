"""How the kernel spreads connections among processes that accept them themselves (decision 22).

    python -m benchmarks.connection_spread [--trials 40] [--workers 2 4] [--connections 16 64]

Stand-in servers on uvloop listen on one shared socket, or each on its own with SO_REUSEPORT. A client opens all
connections at once. Prints the connections of the busiest worker as a multiple of the fair share: mean and worst of all
trials. The supervisor hands connections over by their number instead, which is even by construction.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier

import uvloop

HOW = {"one shared listening socket": False, "SO_REUSEPORT, a socket per worker": True}


def listener(port: int, *, reuse: bool) -> socket.socket:
    """Return a socket that listens on a port of this host."""
    made = socket.socket()
    if reuse:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    made.listen(2048)
    made.setblocking(False)
    return made


def serve(number: int, own: socket.socket, ready: Barrier) -> None:
    """Tell each client the number of this worker."""

    async def run() -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(bytes([number]))

        server = await asyncio.start_server(answer, sock=own)
        ready.wait()
        await server.serve_forever()

    uvloop.run(run())


@contextmanager
def workers(number: int, *, reuse: bool) -> Iterator[int]:
    """Run workers behind one port, which is given."""
    spawning = multiprocessing.get_context("spawn")
    first = listener(0, reuse=reuse)
    port = int(first.getsockname()[1])
    sockets = [first, *(listener(port, reuse=True) if reuse else first for _ in range(number - 1))]
    ready = spawning.Barrier(number + 1)
    running = [spawning.Process(target=serve, args=(place, own, ready)) for place, own in enumerate(sockets)]
    for process in running:
        process.start()
    for own in {*sockets}:
        own.close()  # a socket of this process would get its share, too
    try:
        ready.wait()
        yield port
    finally:
        for process in running:
            process.terminate()
            process.join()


async def busiest(port: int, connections: int, number: int) -> float:
    """Open connections at once; return those of the busiest worker as a multiple of the fair share."""
    opened = await asyncio.gather(*[asyncio.open_connection("127.0.0.1", port) for _ in range(connections)])
    counts = Counter([await reader.readexactly(1) for reader, _ in opened])
    for _, writer in opened:
        writer.close()
    return max(counts.values()) * number / connections


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--connections", type=int, nargs="*", default=[16, 64])
    options = parser.parse_args()
    print("| how | workers | connections | mean | worst |\n|---|---|---|---|---|")
    for how, reuse in HOW.items():
        for number in options.workers:
            with workers(number, reuse=reuse) as port:
                for connections in options.connections:
                    found = [uvloop.run(busiest(port, connections, number)) for _ in range(options.trials)]
                    mean = sum(found) / len(found)
                    print(f"| {how} | {number} | {connections} | {mean:.2f} | {max(found):.2f} |", flush=True)


if __name__ == "__main__":
    main()
