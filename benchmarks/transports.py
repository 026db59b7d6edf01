"""Compare gRPC with REST binary on this machine, side by side, with the same style of client.

    python -m benchmarks.transports --seconds 5 --rounds 3 --write benchmarks/RESULTS.md

The service runs the model of `benchmarks.serving` in one process. Clients are Python processes with one event loop
each: aiohttp for REST, grpcio for gRPC. Each repeats a prepared request on several connections (streams, for gRPC's
streaming call) and does not decode answers. In turns, all transports are measured one after the other. The processor
time of the service per request does not depend on how fast the clients are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.results_file import marked, replace
from benchmarks.serving.formats import Request
from benchmarks.serving.model import LENET, prepare
from benchmarks.serving.servers import CANDOR, Running, candor, free_port, running

PART = "transports"
REST, GRPC, STREAM = TRANSPORTS = ("REST binary", "gRPC", "gRPC, streams")
_METHOD = "/inference.GRPCInferenceService/"
_AHEAD = 4  # requests in flight on each stream
_TICKS = os.sysconf("SC_CLK_TCK")

Times = list[float]


async def rest(port: int, request: Request, connections: int, seconds: float) -> Times:
    """Post a request over several connections, on each as soon as its last answer arrives; return all latencies."""
    import aiohttp

    address = f"http://127.0.0.1:{port}{request.path}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask() -> None:
            async with session.post(address, data=request.body, headers=request.headers) as answer:
                content = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status} {content[:300]!r}")

        return await _repeated(ask, connections, seconds)


async def _grpc(port: int, request: Request, connections: int, seconds: float) -> Times:
    import grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(f"{_METHOD}ModelInfer")

        async def ask() -> None:
            await call(request.body)

        return await _repeated(ask, connections, seconds)


async def _streams(port: int, request: Request, connections: int, seconds: float) -> Times:
    import grpc

    times: Times = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        end = time.monotonic() + seconds

        async def stream() -> None:
            room, sent = asyncio.Semaphore(_AHEAD), asyncio.Queue[float]()

            async def requests() -> AsyncIterator[bytes]:
                while time.monotonic() < end:
                    await room.acquire()
                    sent.put_nowait(time.perf_counter())
                    yield request.body

            async for _ in channel.stream_stream(f"{_METHOD}ModelStreamInfer")(requests()):
                times.append(time.perf_counter() - sent.get_nowait())
                room.release()

        await asyncio.gather(*[stream() for _ in range(max(1, connections // _AHEAD))])
    return times


async def _repeated(ask: Callable[[], Awaitable[None]], connections: int, seconds: float) -> Times:
    times: Times = []
    end = time.monotonic() + seconds

    async def one() -> None:
        while (began := time.perf_counter()) and time.monotonic() < end:
            await ask()
            times.append(time.perf_counter() - began)

    await asyncio.gather(*[one() for _ in range(connections)])
    return times


_CLIENTS = {REST: rest, GRPC: _grpc, STREAM: _streams}


def _client(transport: str, port: int, request: Request, connections: int, seconds: float) -> Times:
    return asyncio.run(_CLIENTS[transport](port, request, connections, seconds))


def _request(transport: str, one: Running, images: Any) -> Request:
    if transport == REST:
        return one.payloads["V2 binary"].write(images)
    from service.grpc.messages import message

    tensor = {"name": "input", "datatype": "UINT8", "shape": images.shape}
    body = message("ModelInferRequest")(model_name=LENET, inputs=[tensor], raw_input_contents=[images.tobytes()])
    return Request("", body.SerializeToString(), {})


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measure(options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Return the turns of each transport."""
    turns: dict[str, list[dict[str, float]]] = {}
    spawning = multiprocessing.get_context("spawn")
    grpc_port = free_port()
    with tempfile.TemporaryDirectory() as name, spawning.Pool(options.processes) as clients:
        scratch = Path(name)
        prepared = prepare(LENET, scratch)
        environment = {
            "CANDOR_GRPC_PORT": str(grpc_port),
            "CANDOR_MAX_QUEUED_ROWS": str(2 * options.connections * max(options.rows)),
        }
        with running(CANDOR, candor(LENET), Path(sys.executable), prepared, scratch, **environment) as one:
            one.check("V2 binary", prepared)
            for _ in range(options.rounds):
                for rows in options.rows:
                    for transport in TRANSPORTS:
                        request = _request(transport, one, prepared.inputs[:rows])
                        port = one.port if transport == REST else grpc_port
                        share = max(1, options.connections // options.processes)
                        for seconds in (options.seconds / 5, options.seconds):  # the first to warm up
                            began = _cpu_s(one.pid)
                            work = [(transport, port, request, share, seconds)] * options.processes
                            times = sorted(t for part in clients.starmap(_client, work) for t in part)
                        turns.setdefault(f"{transport}|{rows}", []).append(
                            {
                                "per_s": len(times) / options.seconds,
                                "p50_ms": 1e3 * times[len(times) // 2],
                                "p99_ms": 1e3 * times[len(times) * 99 // 100],
                                "server_us": 1e6 * (_cpu_s(one.pid) - began) / len(times),
                            }
                        )
    return turns


def part(turns: dict[str, list[dict[str, float]]], options: argparse.Namespace) -> str:
    """Return the part `PART` of the report."""
    lines = [
        f"{options.connections} requests in flight from {options.processes} client processes, medians:",
        "",
        "| | images per request | requests/s | p50, ms | p99, ms | service CPU per request, µs | compared with REST |",
        "|---|---|---|---|---|---|---|",
    ]
    for rows in options.rows:
        for transport in TRANSPORTS:
            found = turns[f"{transport}|{rows}"]
            middle = {name: statistics.median(turn[name] for turn in found) for name in found[0]}
            ratio = middle["per_s"] / statistics.median(turn["per_s"] for turn in turns[f"{REST}|{rows}"])
            lines.append(
                f"| {transport} | {rows} | {middle['per_s']:,.0f} | {middle['p50_ms']:.1f} | {middle['p99_ms']:.1f} | "
                f"{middle['server_us']:.0f} | {ratio:.2f} × |"
            )
    command = " ".join(["python -m benchmarks.transports", *sys.argv[1:]])
    how = f"- Command: `{command}`; {options.rounds} turns of {options.seconds:g} s."
    load = f"- {os.cpu_count()} cores, shared with the clients; load when the run ended: {os.getloadavg()[0]:.1f}."
    return marked(PART, [*lines, "", how, load])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transports",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns per transport; the report shows medians")
    parser.add_argument("--processes", type=int, default=2, help="client processes")
    parser.add_argument("--connections", type=int, default=64, help="requests in flight")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 32], help="images per request")
    parser.add_argument("--keep", type=Path, help="JSON file for the turns")
    parser.add_argument("--write", type=Path, help="Markdown file whose part is replaced")
    options = parser.parse_args()
    turns = measure(options)
    if options.keep:
        options.keep.write_text(json.dumps(turns, indent=1), encoding="utf-8")
    text = part(turns, options)
    print(text)
    if options.write:
        replace(options.write, PART, text)


if __name__ == "__main__":
    main()
