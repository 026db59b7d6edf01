"""Measure what a busy child process takes from a service that is busy on the same processor.

    python -m benchmarks.priorities [--seconds 2]

Both compute on one processor. A child is started as recalibrations are (`idle`, `low`), and, to compare, with the same
SCHED_IDLE in a session of its own. Prints the processor seconds of each and the kernel's setting of autogroups: where
it is 1 and the processes are in the root control group, the kernel first divides the processor among sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from service.serving.child import child

_SETTING = Path("/proc/sys/kernel/sched_autogroup_enabled")
_SPIN = """
import sys, time
sys.stdout.write("\\n"), sys.stdout.flush()
end = float(sys.stdin.readline())
while time.monotonic() < end:
    pass
print(time.process_time())
"""


async def beside(priority: Any, seconds: float) -> dict[str, float]:
    """Compute beside a child that computes too; return the processor seconds of both."""
    async with child("spin", priority) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018 — there are pipes
        await process.stdout.readline()
        end, before = time.monotonic() + seconds, time.process_time()
        process.stdin.write(f"{end}\n".encode())
        await process.stdin.drain()
        while time.monotonic() < end:
            pass
        own = time.process_time() - before
        return {"service_s": round(own, 3), "child_s": round(float(await process.stdout.readline()), 3)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=2.0)
    given = options.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found: dict[str, Any] = {"autogroups": _SETTING.read_text().strip() if _SETTING.exists() else None}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spin.py").write_text(_SPIN, encoding="ascii")
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        for priority in ("idle", "low"):
            found[priority] = asyncio.run(beside(priority, given.seconds))
        with mock.patch("os.setpgrp", os.setsid):
            found["idle, in a session of its own"] = asyncio.run(beside("idle", given.seconds))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
