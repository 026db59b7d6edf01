"""Measure the time from the service's command to its first ready answer. Goal: under 3 s.

python benchmarks/start.py --bundles var/bundles --starts 10
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
from pathlib import Path

from candor import Client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=Path, default=Path("var/bundles"))
    parser.add_argument("--starts", type=int, default=10)
    arguments = parser.parse_args()
    seconds = [start(arguments.bundles) for _ in range(arguments.starts)]
    print(
        f"ready after {statistics.median(seconds):.2f} s (median of {len(seconds)}; "
        f"{min(seconds):.2f} to {max(seconds):.2f}), {os.cpu_count()} cores, Python {platform.python_version()}"
    )


def start(bundles: Path) -> float:
    with socket.socket() as free, tempfile.TemporaryDirectory() as state:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        environment = {
            **os.environ,
            "CANDOR_BUNDLES": str(bundles.resolve()),
            "CANDOR_DATABASE_URL": f"sqlite:///{state}/state.db",
        }
        began = time.perf_counter()
        command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port)]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            with Client(f"http://127.0.0.1:{port}") as client:
                while not client.ready():
                    if process.poll() is not None:
                        sys.exit(f"The service did not start: exit status {process.returncode}.")
                    time.sleep(0.01)
            return time.perf_counter() - began
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
