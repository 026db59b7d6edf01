"""Measure the time from the service's command to its first ready answer, and its CPU time. Goal: under 3 s.

python benchmarks/start.py --bundles examples/bundles --policies examples/policies --busy 2
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from candor import Client

_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=Path, default=Path("var/bundles"))
    parser.add_argument("--policies", type=Path)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--busy", type=int, default=0, help="Number of other processes that use all CPU they get.")
    arguments = parser.parse_args()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        rounds = [starts(arguments.bundles, arguments.policies) for _ in range(arguments.starts + 1)]
    finally:
        for each in others:
            each.kill()
    first, again = zip(*rounds[1:], strict=True)  # those before wrote bytecode
    say("empty state", first)
    say("existing state", again)
    print(f"{os.cpu_count()} cores, {arguments.busy} busy processes beside, Python {platform.python_version()}")


def say(state: str, starts: Sequence[tuple[float, float]]) -> None:
    """Print the medians and the ranges."""
    seconds, used = zip(*starts, strict=True)
    print(
        f"{state}: ready after {statistics.median(seconds):.2f} s (median of {len(starts)}; {min(seconds):.2f} to "
        f"{max(seconds):.2f}), CPU time {statistics.median(used):.2f} s ({min(used):.2f} to {max(used):.2f})"
    )


def starts(bundles: Path, policies: Path | None) -> tuple[tuple[float, float], tuple[float, float]]:
    """Start on an empty state, and on what that start has made of it."""
    with tempfile.TemporaryDirectory() as state:
        environment = os.environ | {
            "CANDOR_BUNDLES": str(bundles.resolve()),
            "CANDOR_DATABASE_URL": f"sqlite:///{state}/state.db",
            "PYTHONDONTWRITEBYTECODE": "",  # an installation has it, whatever the environment says
        }
        if policies is not None:
            environment["CANDOR_POLICIES"] = str(policies.resolve())
        return start(environment), start(environment)


def start(environment: dict[str, str]) -> tuple[float, float]:
    """Start the service; return the seconds until it is ready, and the CPU seconds of its processes until then."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.perf_counter()
    command = [sys.executable, "-m", "service", "serve", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            while not client.ready():
                if process.poll() is not None:
                    sys.exit(f"The service did not start: exit status {process.returncode}.")
                time.sleep(0.01)
        return time.perf_counter() - began, cpu_seconds(process.pid)
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(process: int | str) -> float:
    """Return the CPU time of a process and of its children, those that run and those that have ended."""
    root = Path(f"/proc/{process}")
    times = (root / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:15]
    children = (child for each in root.glob("task/*/children") for child in each.read_text(encoding="ascii").split())
    return sum(map(int, times)) / _TICKS + sum(cpu_seconds(child) for child in children)


if __name__ == "__main__":
    main()
