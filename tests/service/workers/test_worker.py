"""A worker's process, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.workers.worker import Worker

_KILLED = f"""#!{sys.executable}
import os, signal, socket, sys

control = socket.socket(fileno=int(sys.argv[3]))
control.recv(1_000)  # what is not read would reset the connection
control.sendall(b'{{"ready": true}}\\n{{"answer": 7, "value": [1, 2')
os.kill(os.getpid(), signal.SIGKILL)
"""


async def _heard() -> tuple[list[dict[str, Any]], int]:
    worker = Worker(1, threads=1)
    messages = [message async for message in worker.start({}, ())]
    return messages, await worker.end()


def test_a_worker_that_is_killed_in_the_middle_of_a_message_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(_KILLED)
    program.chmod(0o755)
    monkeypatch.setattr("service.workers.worker.sys", SimpleNamespace(executable=str(program)))
    assert asyncio.run(_heard()) == ([{"ready": True}], -9)
