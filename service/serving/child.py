"""Child processes for long work at low CPU priority.

`python -m service.serving.child PRIORITY MODULE` lowers its priority before it imports the module, because the
imports alone take a second of CPU time. It ends with the service, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import runpy
import select
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from typing import Literal

from bundle.processors import thread_limits

Priority = Literal["idle", "low"]

_LOW, _LOWEST = 10, 19
# A line can contain a whole report with its diagrams.
_LINE_LIMIT = 64 * 1024 * 1024


@contextlib.asynccontextmanager
async def child(module: str, priority: Priority) -> AsyncIterator[Process]:
    """Run a module in a separate process with pipes; kill it on exit if it still runs.

    Args:
        module: Name of a module to run as `__main__`.
        priority: "idle" uses only CPU time that predictions leave, possibly none; "low" guarantees a small share.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "service.serving.child",
            priority,
            module,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, **thread_limits(1)},  # the other cores are for predictions
            limit=_LINE_LIMIT,
            # Ctrl-C goes to the service, which ends its children. No session of its own: where the kernel groups
            # processes by session (sched_autogroup_enabled), its priority would not count against the service's.
            preexec_fn=os.setpgrp,  # uvloop takes no process_group
        )
    )
    try:
        # Cancellation must not interrupt the start: uvloop would leave an orphan process.
        yield await asyncio.shield(starting)
    finally:
        process = await starting
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


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


def end_without_reader() -> None:
    """End this process when the reader of its standard output is gone.

    A killed service cannot end its children, and a computing child would notice only at its next output.
    """
    stdout = sys.stdout.fileno()

    def watch() -> None:
        poller = select.poll()
        poller.register(stdout, 0)  # no events: the loss of the reader is always reported
        poller.poll()
        os._exit(1)

    threading.Thread(target=watch, name="reader", daemon=True).start()


if __name__ == "__main__":
    step_back("low" if sys.argv.pop(1) == "low" else "idle")
    end_without_reader()
    runpy.run_module(sys.argv.pop(), run_name="__main__", alter_sys=True)
