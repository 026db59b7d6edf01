"""Other processes, as Linux' /proc shows them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.waiting import until


def children_of(process: int | str = "self") -> list[int]:
    """Return the children of all threads of a process; a thread may end while they are read."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, (thread / "children").read_text().split())
    return found


def freeze(process: int) -> None:
    """Stop a process, and return when each of its threads has stopped: the signal reaches one of them first."""
    os.kill(process, signal.SIGSTOP)
    until(lambda: _states(process) <= {"T", "Z"})  # it may have been killed meanwhile


def _states(process: int) -> set[str]:
    states = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states
