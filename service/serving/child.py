"""Child processes for long work at low CPU priority.

`python -m service.serving.child PRIORITY MODULE` lowers its priority before it imports the module, because the
imports alone take a second of CPU time. It ends with the service, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import runpy
import select
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Literal, Self

from bundle.processors import thread_limits

Priority = Literal["idle", "low"]

_LOW, _LOWEST = 10, 19
# A line can contain a whole report with its diagrams.
_LINE_LIMIT = 64 * 1024 * 1024


class Child:
    """A process with pipes.

    It is no `asyncio.subprocess.Process`: uvloop forks for one, which copies the page tables of the service while its
    event loop waits, 35 ms where 0.6 GB are in use.

    Attributes:
        stdout: What it writes; a line may have 64 MiB.
        stderr: What it complains of.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None  # noqa: S101 — there is a pipe
        self._process, self._stdin = process, process.stdin
        self._transports: list[asyncio.ReadTransport] = []
        self.stdout, self.stderr = asyncio.StreamReader(_LINE_LIMIT), asyncio.StreamReader(_LINE_LIMIT)

    @classmethod
    async def start(cls, module: str, priority: Priority) -> Self:
        """Start a process and begin to read its pipes; arguments as in `child`."""
        started = cls(await asyncio.to_thread(_popen, module, priority))
        loop, process = asyncio.get_running_loop(), started._process
        for reader, pipe in ((started.stdout, process.stdout), (started.stderr, process.stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            started._transports.append(transport)
        return started

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal; None until it has been waited for."""
        return self._process.returncode

    async def write(self, data: bytes) -> None:
        """Write to its standard input. A process that has ended loses what it has not read."""
        with contextlib.suppress(BrokenPipeError):
            await asyncio.to_thread(self._stdin.write, data)

    async def communicate(self, data: bytes) -> tuple[bytes, bytes]:
        """Write all of its input, and return all of its output and complaints once it has ended."""
        _, output, complaints = await asyncio.gather(self.write(data), self.stdout.read(), self.stderr.read())
        await self.wait()
        return output, complaints

    async def wait(self) -> int:
        """Wait until it has ended; return its exit status."""
        return await asyncio.to_thread(self._process.wait)

    async def end(self) -> None:
        """Kill it if it still runs, and close its pipes."""
        self._process.kill()
        await self.wait()
        self._stdin.close()
        for transport in self._transports:
            transport.close()


@contextlib.asynccontextmanager
async def child(module: str, priority: Priority) -> AsyncIterator[Child]:
    """Run a module in a separate process with pipes; kill it on exit if it still runs.

    Args:
        module: Name of a module to run as `__main__`.
        priority: "idle" uses only CPU time that predictions leave, possibly none; "low" guarantees a small share.
    """
    starting = asyncio.ensure_future(Child.start(module, priority))
    try:
        # Cancellation must not interrupt the start, which would leave an orphan process.
        yield await asyncio.shield(starting)
    finally:
        await (await starting).end()


def _popen(module: str, priority: Priority) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 — this interpreter, and modules of the service
        [sys.executable, "-m", "service.serving.child", priority, module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, **thread_limits(1)},  # the other cores are for predictions
        # Ctrl-C goes to the service, which ends its children. No session of its own: where the kernel groups
        # processes by session (sched_autogroup_enabled), its priority would not count against the service's.
        process_group=0,
    )


def step_back(priority: Priority) -> None:
    """Lower the priority of this process.

    "idle" is SCHED_IDLE on Linux: any other thread of the same control group and session preempts it at once, while
    predictions would wait milliseconds for the end of a niced process's time slice. "low" gets some CPU time even on a
    host that is always busy.
    """
    os.nice(_LOWEST if priority == "idle" else _LOW)
    if priority == "idle" and sys.platform == "linux":
        with contextlib.suppress(OSError):  # some sandboxes refuse it; the process is niced instead
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def end_without_reader(descriptor: int) -> None:
    """End this process when nobody reads what it writes any more.

    A killed service cannot end its children, and a computing child would notice only at its next output.

    Args:
        descriptor: Open pipe that it writes to.
    """

    def watch() -> None:
        poller = select.poll()
        poller.register(descriptor, 0)  # no events: the loss of the reader is always reported
        poller.poll()
        os._exit(1)

    threading.Thread(target=watch, name="reader", daemon=True).start()


def limit_memory(more: int) -> None:
    """Limit the memory of this process to what it uses now and this many bytes more."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmData:"):
            limit = int(line.split()[1]) * 1024 + more
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    step_back("low" if sys.argv.pop(1) == "low" else "idle")
    end_without_reader(sys.stdout.fileno())
    runpy.run_module(sys.argv.pop(), run_name="__main__", alter_sys=True)
