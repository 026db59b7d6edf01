"""A real `candor serve` that can be killed, with or without its children, and whose remains can be looked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx

from tests.ports import free_port

PATIENCE_S = 120.0


class Victim:
    """A running service.

    Args:
        environment: What it is started with.
        log: File that its standard error is appended to.

    Attributes:
        url: Where it answers.
        popen: Its process.
        ready_after_s: Seconds from its start to its first 200 of /readyz, None before.
        processor_s: Seconds of the processor that it had taken by then.
    """

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._began = time.perf_counter()
        with log.open("ab") as stream:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "service.cli", "serve", "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                # Kills keep every processor busy. Bytecode is kept, or each start would compile every module.
                env={"CANDOR_REFIT_CPU": "low", **environment, "PYTHONDONTWRITEBYTECODE": ""},
                start_new_session=True,
            )
        self.ready_after_s: float | None = None
        self.processor_s: float | None = None

    def wait_until_ready(self) -> None:
        """Return at the first 200 of /readyz.

        Raises:
            RuntimeError: It ended before, or never came to be ready.
        """
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as http:
            while time.perf_counter() - self._began < PATIENCE_S:
                if self.popen.poll() is not None:
                    raise RuntimeError(f"the service did not start: exit status {self.popen.returncode}")
                with suppress(httpx.TransportError):
                    if http.get("/readyz").status_code == 200:
                        self.ready_after_s = time.perf_counter() - self._began
                        self.processor_s = processor_seconds(self.popen.pid)
                        return
                time.sleep(0.005)
        raise RuntimeError("the service never was ready")

    def children(self) -> list[int]:
        """Return the ids of its child processes."""
        return [pid for pid in processes() if parent_of(pid) == self.popen.pid]

    def kill(self, *, with_children: bool) -> int:
        """Send SIGKILL, to the service alone or to its children too; returns how many children it had."""
        children = self.children()
        self.popen.kill()
        for pid in children if with_children else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.popen.wait(PATIENCE_S)
        return len(children)

    def stop(self) -> int:
        """Ask it to stop; returns its exit status."""
        self.popen.terminate()
        return self.popen.wait(PATIENCE_S)


def processes() -> list[int]:
    """Return the ids of all processes."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def parent_of(pid: int) -> int | None:
    """Return the id of a process' parent, None where the process has gone."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def processor_seconds(pid: int) -> float:
    """Return what a process has taken of the processors."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(int(part) for part in ticks) / os.sysconf("SC_CLK_TCK")


def with_environment(entry: str) -> list[int]:
    """Return the ids of the processes that have an entry, such as "NAME=value", in their environment."""
    found = []
    for pid in processes():
        with suppress(OSError):
            if entry.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def gone_after_s(entry: str) -> float | None:
    """Wait until no process has the entry in its environment; return the seconds, None where it takes too long."""
    began = time.perf_counter()
    while with_environment(entry):
        if time.perf_counter() - began > PATIENCE_S:
            return None
        time.sleep(0.02)
    return time.perf_counter() - began
