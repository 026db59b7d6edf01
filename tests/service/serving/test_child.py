"""Child processes step back before they import what they work with, and do not outlive the block that they are for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from service.serving.child import child
from tests.children import children_of
from tests.waiting import PATIENCE_S

MODULE = """
import os, sys
idle = os.sched_getscheduler(0) == os.SCHED_IDLE
same_session, own_group = os.getsid(0) == os.getsid(os.getppid()), os.getpgid(0) == os.getpid()
print(os.nice(0), idle, same_session, own_group, os.environ["OMP_NUM_THREADS"], sys.argv, __name__, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux's")
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_child_takes_only_what_is_left_over_and_ends_with_its_block(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another session, its priority would not count; in the same process group, Ctrl-C would reach it."""
    (tmp_path / "worker.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    async def run() -> tuple[str, int | None]:
        async with child("worker", "idle") as process:
            line = (await process.stdout.readline()).decode()
            assert process.returncode is None
        return line, process.returncode

    with asyncio.Runner(loop_factory=new_loop) as runner:
        line, status = runner.run(run())
    assert line == f"19 True True True 1 {[str(tmp_path / 'worker.py')]} __main__\n"
    assert status == -9


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_a_child_that_is_cancelled_while_it_starts_has_ended_with_its_block(steps: int) -> None:
    async def run() -> bool:
        async def work() -> None:
            async with child("tokenize", "low"):
                await asyncio.Event().wait()

        working = asyncio.create_task(work())
        for _ in range(steps):  # of the event loop: at each the start has come as far as it can
            await asyncio.sleep(0)
        working.cancel()
        await asyncio.wait((working,))
        return working.cancelled()

    before = {*children_of()}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run())
    assert {*children_of()} <= before, "a process is left, running or to be waited for"


def test_a_child_ends_when_the_service_that_reads_it_has_gone(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("import time\ntime.sleep(600)\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "service.serving.child", "worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.close()  # its standard input stays open
        try:
            assert process.wait(PATIENCE_S) == 1
        finally:
            process.kill()
