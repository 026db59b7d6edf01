"""A Ray cluster of two raylets, for tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.waiting import PATIENCE_S

BIN = ROOT / "build" / "ray" / "bin"
SETTINGS = {
    "PYTHONPATH": str(ROOT),
    "PYTHONDONTWRITEBYTECODE": "",
    "RAY_AUTH_MODE": "disabled",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # an actor; nothing takes back a node of these
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",  # nobody reads them
    "RAY_worker_niceness": "0",  # else the workers have the lowest priority
}
PATIENT = {  # for what starts a cluster: on busy machines the processes of Ray take long to start
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_prestart_worker_first_driver": "0",  # most of these would never work
}


@dataclass(frozen=True)
class Cluster:
    """Two raylets.

    Attributes:
        address: Their address.
        environment: That of their processes and of the commands.
        mark: In their environment alone.
        nodes: The process that has started them.
    """

    address: str
    environment: dict[str, str]
    mark: str
    nodes: subprocess.Popen[str]

    def start(self, folder: Path, command: str, *typed: object) -> subprocess.Popen[str]:
        """Start a command of Ray's environment."""
        pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {"text": True}
        return subprocess.Popen([BIN / command, *map(str, typed)], cwd=folder, env=self.environment, **pipes)

    def commands(self) -> subprocess.Popen[str]:
        """Start what runs commands one after another; see `begin`."""
        command = [BIN / "python", "-m", "tests.ray_commands"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env=self.environment, **pipes)

    def lose_node(self) -> None:
        """Kill the second raylet, once, with what works on it."""
        assert self.nodes.stdin is not None
        assert self.nodes.stdout is not None
        self.nodes.stdin.write("\n")
        self.nodes.stdin.flush()
        assert any(line.startswith("lost") for line in self.nodes.stdout)

    def processes(self, name: str) -> Iterator[int]:
        """Yield those of the cluster whose name contains this."""
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                told = (place / "cmdline").read_bytes()
                if told.startswith(b"ray::") and name in told.decode() and self.mark in (place / "environ").read_text():
                    yield int(place.name)


def begin(commands: subprocess.Popen[str], folder: Path, *typed: str) -> None:
    """Begin a command of `candor-train`."""
    assert commands.stdin is not None
    commands.stdin.write(json.dumps([str(folder), typed]) + "\n")
    commands.stdin.flush()


def printed(commands: subprocess.Popen[str]) -> str:
    """Return what the command printed that was begun, once it has ended well."""
    assert commands.stdout is not None
    said = next((line for line in commands.stdout if line.startswith("ended")), "")
    assert said, "it ended itself"
    status, stdout, stderr = json.loads(said.removeprefix("ended"))
    assert status == 0, stderr
    told: str = stdout
    return told


def ended(process: subprocess.Popen[str], given: str = "") -> str:
    """Return what a process printed, once it has read its input and ended well."""
    stdout, stderr = process.communicate(given, timeout=PATIENCE_S)
    assert process.returncode == 0, stderr
    return stdout


def two_nodes() -> Iterator[Cluster]:
    """Start a cluster; end it at the end of the fixture that yields from this."""
    if not (BIN.parent / ".made").exists():
        pytest.skip("Ray is not installed: make ray")
    folder, mark = tempfile.mkdtemp(prefix="ray"), f"CANDOR_TEST={uuid.uuid4().hex}"  # short enough for a socket
    known = dict(os.environ) | SETTINGS
    process = subprocess.Popen(
        [BIN / "python", ROOT / "tests" / "ray_nodes.py", folder, "1"],
        env=known | PATIENT | {"RAY_TMPDIR": folder} | dict([mark.split("=")]),
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = next((line for line in process.stdout if line.startswith("started")), "")
        assert said, "it did not start"
        yield Cluster(said.split()[1], known, mark, process)
        process.communicate(timeout=PATIENCE_S)  # ends its input
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)  # closes the pipes, too
        shutil.rmtree(folder, ignore_errors=True)
