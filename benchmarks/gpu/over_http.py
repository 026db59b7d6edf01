"""Serve a network with `candor serve` and ask it over HTTP, in binary tensors of the Open Inference Protocol."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu import networks
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.sessions import LARGEST_DIFFERENCE, summary
from benchmarks.serving.model import Prepared
from benchmarks.serving.servers import CANDOR, Running, candor, running
from benchmarks.transports import rest

_PAYLOAD = "V2 binary"


def run(bench: Bench, *, network: str) -> dict[str, Any]:
    """Return the largest difference of probabilities from the CPU, and latency and rate by connections and rows.

    The client is one Python process, so that small requests may measure it rather than the service.

    Raises:
        RuntimeError: The service does not start, refuses a request, or gives other probabilities than the CPU.
    """
    host, sizes, prepared = bench.host, bench.host.sizes, networks.load(bench, network)
    environment = {
        "CANDOR_PROVIDER": "cpu" if host.gpu is None else "cuda",
        "CANDOR_MAX_BATCH_SIZE": str(sizes.batches[-1]),
    }
    loads = []
    bench.say("start the service")
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(CANDOR, candor(network), Path(sys.executable), prepared, Path(scratch), **environment) as one,
    ):
        difference = _difference(one, prepared)
        for connections, rows in sizes.loads:
            bench.say(f"{connections} connections, {rows} images a request")
            request = one.payloads[_PAYLOAD].write(prepared.inputs[:rows])
            for seconds in (sizes.seconds / 5, 2 * sizes.seconds):  # the first to warm up
                times = asyncio.run(rest(one.port, request, connections, seconds))
            rate = rows * connections * len(times) / sum(times)
            loads.append({"connections": connections, "rows": rows, **summary(times, rate)})
    return {"provider": environment["CANDOR_PROVIDER"], "difference": difference, "loads": loads}


def _difference(one: Running, prepared: Prepared) -> float:
    how = one.payloads["npy"]
    status, body, headers = one.ask(how.write(prepared.inputs))
    if status != 200:
        raise RuntimeError(f"/predict: {status} {body[:300]!r}")
    difference = float(np.abs(how.read(body, headers) - prepared.probabilities).max())
    if not difference <= LARGEST_DIFFERENCE:
        raise RuntimeError(f"probabilities differ from the CPU's by {difference:.3g}, expected {LARGEST_DIFFERENCE:g}")
    return difference
