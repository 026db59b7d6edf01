"""A real `candor serve` on the committed bundle of digits, for whoever is about to be unkind to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Running:
    """A service that answers.

    Attributes:
        url: Where.
        popen: Its process.
        log: File of its standard error.
        environment: What it was started with.
        key: An API key that may do everything, where it wants one.
    """

    url: str
    popen: subprocess.Popen[bytes]
    log: Path
    environment: dict[str, str]
    key: str | None

    @property
    def headers(self) -> dict[str, str]:
        """What a client needs to be let in."""
        return {} if self.key is None else {"authorization": f"Bearer {self.key}"}

    @property
    def resident_bytes(self) -> int:
        """Memory of the process, without its children."""
        for line in Path(f"/proc/{self.popen.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError("the service is gone")

    def complaints(self) -> list[str]:
        """Return the lines of its log that it should not have written: errors, and whatever is no line of a log."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                level = json.loads(line)["level"]
            except (ValueError, KeyError, TypeError):
                level = "none"
            if level not in ("debug", "info", "warning"):
                found.append(line)
        return found


@contextmanager
def serving(*, keys: bool = False, **settings: Any) -> Iterator[Running]:
    """Start a service with a state of its own, and end it.

    Args:
        keys: Whether it wants API keys.
        settings: Of the service, by name.
    """
    with tempfile.TemporaryDirectory(prefix="candor-hardening-") as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CANDOR_")}
        given = {
            "bundles": EXAMPLES / "bundles",
            "policies": EXAMPLES / "policies",
            "database_url": f"sqlite:///{folder}/state.db",
            "uploads": f"{folder}/uploads",
            "child_priority": "low",  # what is sent keeps every processor busy
        }
        environment |= {f"CANDOR_{name.upper()}": str(value) for name, value in (given | settings).items()}
        key = _new_key(environment) if keys else None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        log = Path(folder) / "log"
        with log.open("wb") as stream:
            popen = subprocess.Popen(
                [sys.executable, "-m", "service.cli", "serve", "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                env=environment,
            )
        try:
            running = Running(f"http://127.0.0.1:{port}", popen, log, environment, key)
            _wait(running)
            yield running
        finally:
            popen.terminate()
            popen.wait(PATIENCE_S)


def _new_key(environment: dict[str, str]) -> str:
    command = [
        sys.executable,
        "-m",
        "service.cli",
        "keys",
        "create",
        "--name",
        "hardening",
        "--scope",
        "admin",
        "--json",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=PATIENCE_S)
    key: str = json.loads(done.stdout)["key"]
    return key


def _wait(running: Running) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while running.popen.poll() is None and time.monotonic() < give_up:
        try:
            if httpx.get(f"{running.url}/readyz", timeout=PATIENCE_S).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError(f"the service did not start:\n{running.log.read_text(errors='replace')}")
