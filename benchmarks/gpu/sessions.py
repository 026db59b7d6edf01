"""Run a network with one provider, through the sessions of the service: copy, model, calibrator, copy back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import bundle
from benchmarks.gpu import networks
from benchmarks.gpu.bench import Bench, LeftOutError
from bundle.processors import whole_cpus
from service.errors import ConfigurationError
from service.inference.chain import Chain
from service.inference.providers import resolve_provider
from service.inference.session import Session

PROVIDERS = {"cpu": "CPU", "cuda": "CUDA", "cuda-graphs": "CUDA graphs", "tensorrt": "TensorRT"}
LARGEST_DIFFERENCE = 1e-4
"""Of calibrated probabilities from the CPU's."""

_WARM_UP = 3
_FEWEST = 5


def run(bench: Bench, *, network: str, provider: str) -> dict[str, Any]:
    """Return the seconds until ready, the largest difference from the CPU, and latency and rate by batch size.

    A CUDA graph is recorded and replayed by one thread, which this process has.

    Raises:
        LeftOutError: A library of the provider is missing.
        RuntimeError: Probabilities differ from the CPU's.
    """
    try:
        resolve_provider(provider)
    except ConfigurationError as error:
        raise LeftOutError(f"{error} {error.remedy}") from error
    prepared, sizes = networks.load(bench, network), bench.host.sizes
    verified = bundle.verify(prepared.bundles / network / "1")
    bench.say("open")
    began = time.perf_counter()
    threads = whole_cpus() if provider == "cpu" else 1
    session = Session(verified, provider=provider, threads=threads, max_batch_size=sizes.batches[-1])
    chain = Chain(session, verified.calibrator)
    ready_s = time.perf_counter() - began
    difference = max(
        float(np.abs(chain.run(prepared.inputs[:size])[1] - prepared.probabilities[:size]).max())
        for size in sizes.batches
    )
    if not difference <= LARGEST_DIFFERENCE:
        raise RuntimeError(f"probabilities differ from the CPU's by {difference:.3g}, expected {LARGEST_DIFFERENCE:g}")
    batches = {}
    for size in sizes.batches:
        bench.say(f"batches of {size}")
        batches[str(size)] = measured(partial(chain.run, prepared.inputs[:size]), size, sizes.seconds)
    return {"ready_s": ready_s, "difference": difference, "batches": batches}


def measured(call: Callable[[], object], rows: int, seconds: float) -> dict[str, float]:
    """Return the median and 99th percentile of a call in milliseconds, and rows per second."""
    for _ in range(_WARM_UP):
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end or len(times) < _FEWEST:
        call()
        times.append(time.perf_counter() - began)
    return summary(times, rows * len(times) / sum(times))


def summary(times: list[float], images_per_s: float) -> dict[str, float]:
    """Return the median and 99th percentile of times, in milliseconds, beside a rate."""
    p50, p99 = statistics.median(times), float(np.quantile(times, 0.99))
    return {"p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99, "images_per_s": images_per_s}
