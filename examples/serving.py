"""Runs the real service for as long as a story lasts."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from candor import Client

ROOT = Path(__file__).resolve().parent.parent
_PATIENCE_S = 120


@contextlib.contextmanager
def service(folder: Path, policies: Path, console: Console, **settings: str) -> Iterator[str]:
    """Run the real service in a separate process on a free port until the block ends.

    Args:
        folder: Folder of `bundles/`, state and log.
        policies: Folder of policies: `{model}/{policy}.yaml`.
        console: Receives a line when the service is ready.
        settings: Further environment variables.

    Yields:
        URL of the service.

    Raises:
        SystemExit: The service does not start; with its log.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "CANDOR_BUNDLES": str(folder / "bundles"),
        "CANDOR_POLICIES": str(policies),
        "CANDOR_DATABASE_URL": f"sqlite:///{folder / 'state.db'}",
        **settings,
    }
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port)]
    with (folder / "service.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stderr=log, cwd=ROOT)
        try:
            started = time.monotonic()
            with Client(url) as client:
                while not client.ready():
                    if process.poll() is not None or time.monotonic() - started > _PATIENCE_S:
                        sys.exit(f"The service did not start:\n{(folder / 'service.log').read_text()}")
                    time.sleep(0.05)
            console.print(f"service at {url}, ready after {time.monotonic() - started:.1f} s\n")
            yield url
        finally:
            process.terminate()
            process.wait(timeout=20)
