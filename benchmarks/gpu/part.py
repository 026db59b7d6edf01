"""Parts of a run. Each runs in a process of its own and leaves its outcome in a JSON file, whole or not at all.

    python -m benchmarks.gpu.part NAME FOLDER

A crash, a leak or a hang of one part does not reach the others, and each starts with an empty GPU.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import gpu_tests, networks, over_http, sessions, training_speed
from benchmarks.gpu.bench import Bench, LeftOutError
from benchmarks.gpu.host import find

COMPLETE, LEFT_OUT, FAILED = "complete", "left out", "failed"

# TensorRT has no option of ONNX Runtime for TF32, which would change logits by more than calibration promises.
_FULL_PRECISION = {"NVIDIA_TF32_OVERRIDE": "0"}

Outcome = dict[str, Any]
"""`status`, `seconds`, `host`, and `result` of a complete part or `reason` of another."""


@dataclass(frozen=True)
class Part:
    """A part of the run.

    Attributes:
        run: Measures and returns a result for JSON; LeftOutError where this machine lacks what it needs.
        environment: Further environment variables of its process.
        needs_gpu: Whether it is left out without a GPU.
    """

    run: Callable[[Bench], dict[str, Any]]
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_gpu: bool = False


PARTS: dict[str, Part] = {
    "tests": Part(gpu_tests.run, _FULL_PRECISION),
    "training": Part(training_speed.run),
    "networks": Part(networks.run),
    **{
        f"{network}-{provider}": Part(
            partial(sessions.run, network=network, provider=provider), _FULL_PRECISION, needs_gpu=provider != "cpu"
        )
        for network in networks.NETWORKS
        for provider in sessions.PROVIDERS
    },
    **{f"{network}-http": Part(partial(over_http.run, network=network)) for network in networks.NETWORKS},
}
"""All parts, in the order of a run."""


def path_of(folder: Path, name: str) -> Path:
    """Return the file of a part's outcome."""
    return folder / f"{name}.json"


def take(name: str, bench: Bench) -> Outcome:
    """Run a part and write its outcome, complete or left out."""
    began = time.monotonic()
    try:
        found = {"status": COMPLETE, "result": PARTS[name].run(bench)}
    except LeftOutError as error:
        found = {"status": LEFT_OUT, "reason": str(error)}
    outcome = found | {"seconds": time.monotonic() - began, "host": asdict(bench.host)}
    path = path_of(bench.folder, name)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(outcome, indent=1, ensure_ascii=False), encoding="utf-8")
    temporary.replace(path)
    return outcome


def main() -> None:
    # Ends by an exception, so that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    name, folder = sys.argv[1], Path(sys.argv[2])
    take(name, Bench(folder, find()))


if __name__ == "__main__":
    main()
