"""Processes of a server, and their processor time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MARK: Final = "BENCHMARK_SERVER"
"""Environment variable that a server's processes inherit: one whose parent has ended is found by it."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def processes(pid: int, mark: str) -> set[int]:
    """Return the ids of the living processes of a server: its first, those with its mark, and all their children.

    Args:
        pid: Id of the first process.
        mark: Value of `MARK` in its environment.
    """
    found, parents = {pid}, dict[int, int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_fields(int(entry.name))[1])
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
            except OSError:  # it has ended, or belongs to another user
                continue
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found & parents.keys()


def processor_seconds(pid: int, mark: str) -> float:
    """Return the user and system time so far of the living processes of a server, in seconds."""
    return sum(map(seconds_of, processes(pid, mark)))


def seconds_of(pid: int) -> float:
    """Return the user and system time of a process so far, in seconds; 0 if it has ended."""
    try:
        return sum(map(int, _fields(pid)[11:13])) / _TICKS_PER_S
    except OSError:
        return 0.0


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on: state, parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
