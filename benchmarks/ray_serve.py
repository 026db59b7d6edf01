"""Processor time per request of `candor serve`, and of Ray Serve in its default and its throughput mode.

    make ray
    python -m benchmarks.ray_serve [--requests 2000] [--connections 16] [--database postgresql://…/empty]

Each request is one image of the example bundle. Counted is the time of all processes of the service, Ray's own among
them, between the first and the last answer.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.serving.modes import RAY_THROUGHPUT
from benchmarks.start import cpu_seconds

ROOT = Path(__file__).resolve().parent.parent
PORT = 18765


async def ask(requests: int, connections: int) -> None:
    stream = io.BytesIO()
    np.save(stream, np.zeros((1, 8, 8, 1), np.uint8))
    limits = httpx.Limits(max_connections=connections)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", limits=limits, timeout=60) as client:

        async def some() -> None:
            for _ in range(requests // connections):
                headers = {"content-type": "application/x-npy"}
                (await client.post("/predict", content=stream.getvalue(), headers=headers)).raise_for_status()

        await asyncio.gather(*(some() for _ in range(connections)))


def answers() -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{PORT}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def measure(name: str, command: list[Any], environment: dict[str, str], given: argparse.Namespace) -> None:
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not answers():
            if process.poll() is not None:
                sys.exit(f"{name} did not start")
            time.sleep(0.5)
        asyncio.run(ask(given.requests // 4, given.connections))
        before, began = cpu_seconds(process.pid), time.monotonic()
        asyncio.run(ask(given.requests, given.connections))
        spent, seconds = cpu_seconds(process.pid) - before, time.monotonic() - began
        each = spent / given.requests * 1e3
        print(
            f"{name}: {each:.2f} ms of processor time per request, {given.requests / seconds:.0f} requests/s",
            flush=True,
        )
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
        while answers():  # Ray's processes end some time after
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--database", default="postgresql://postgres@127.0.0.1:5432/postgres")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ray")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "CANDOR_BUNDLES": str(ROOT / "examples" / "bundles"),
        "CANDOR_HOST": "127.0.0.1",
        "CANDOR_DATABASE_URL": given.database,
        "CANDOR_DEADLINE_S": "60",
    }
    python = ROOT / "build" / "ray" / "bin" / "python"
    on_ray = [python, ROOT / "tests" / "service" / "on_ray.py", str(PORT), folder]
    try:
        measure("candor serve", [python, "-m", "service.cli", "serve", "--port", str(PORT)], environment, given)
        measure("Ray Serve, default", on_ray, environment, given)
        measure("Ray Serve, throughput", on_ray, environment | RAY_THROUGHPUT, given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
