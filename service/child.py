"""Child processes for long work: one module each, and only on what time of the processors predictions leave over.

Run as `python -m service.child PRIORITY MODULE` it steps back first and imports afterwards: the imports of a refit are
a second of work too. It ends with the service, however that ends.
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

Priority = Literal["idle", "low"]

# A child takes one processor and leaves the others to predictions.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_LOW, _LOWEST = 10, 19
# One line of a child's may hold a whole report with its diagrams.
_LINE_LIMIT = 64 * 1024 * 1024


@contextlib.asynccontextmanager
async def child(module: str, priority: Priority) -> AsyncIterator[Process]:
    """Run a module in a process of its own, with pipes to it; it is killed where it still lives at the end.

    Args:
        module: Name of a module that works when it is run as `__main__`.
        priority: "idle" is what time of the processors others leave over, and may be none; "low" is a small share.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "service.child",
        priority,
        module,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, **_ONE_THREAD},
        limit=_LINE_LIMIT,
        start_new_session=True,  # Ctrl-C is for the service, which ends its children
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def step_back(priority: Priority) -> None:
    """Leave the processors to others from now on.

    "idle" is SCHED_IDLE on Linux: whoever wakes up takes the processor at once. A niced process would keep it to the
    end of its slice, for milliseconds that predictions beside it would wait. "low" gets some of it on a host that is
    always busy.
    """
    os.nice(_LOWEST if priority == "idle" else _LOW)
    if priority == "idle" and sys.platform == "linux":
        with contextlib.suppress(OSError):  # sandboxes refuse it; then it is niced
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def end_without_reader() -> None:
    """End this process as soon as nobody can read its standard output: then nobody waits for what it computes.

    A service that is killed can end no child itself, and a child that computes for minutes would notice only when it
    next says something.
    """
    stdout = sys.stdout.fileno()

    def watch() -> None:
        poller = select.poll()
        poller.register(stdout, 0)  # no event is asked for: a reader that has gone is reported all the same
        poller.poll()
        os._exit(1)

    threading.Thread(target=watch, name="reader", daemon=True).start()


if __name__ == "__main__":
    step_back("low" if sys.argv.pop(1) == "low" else "idle")
    end_without_reader()
    runpy.run_module(sys.argv.pop(), run_name="__main__", alter_sys=True)
