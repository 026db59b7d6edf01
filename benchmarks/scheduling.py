"""What the kernel's scheduler does to a service, and what a benchmark may do to that."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
_ATTR: Final = "IIQiIQQQII"  # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period, clamps
_PERIOD_S: Final = 0.01


@dataclass(frozen=True)
class Delays:
    """Scheduling of all threads of some processes since they started.

    Attributes:
        ran_s: Time on a processor, in seconds.
        waited_s: Time that threads were ready to run and waited for a processor, in seconds.
        turns: Number of times that one got a processor.
    """

    ran_s: float
    waited_s: float
    turns: int

    def since(self, before: Delays) -> dict[str, float]:
        """Return processor time, and microseconds of waiting per turn, since an earlier reading."""
        turns = max(1, self.turns - before.turns)
        return {
            "ran_s": round(self.ran_s - before.ran_s, 3),
            "wait_per_turn_us": round(1e6 * (self.waited_s - before.waited_s) / turns, 1),
            "turns": turns,
        }


def delays(pid: int) -> Delays:
    """Read the delays of a process's living threads (/proc/PID/task/*/schedstat)."""
    ran = waited = turns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            one = [int(number) for number in (thread / "schedstat").read_text().split()]
            ran, waited, turns = ran + one[0], waited + one[1], turns + one[2]
    return Delays(ran / 1e9, waited / 1e9, turns)


def stolen_s() -> float:
    """Return the time that the hypervisor has taken from the processors since the start, in seconds."""
    ticks = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[8]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def set_slice(nanoseconds: int) -> None:
    """Give this process a time slice (Linux 6.12 and newer): threads with short ones wait less and run shorter.

    Raises:
        OSError: The kernel refuses.
    """
    attributes = struct.pack(_ATTR, struct.calcsize(_ATTR), 0, 0, 0, 0, nanoseconds, 0, 0, 0, 0)
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(_SCHED_SETATTR[os.uname().machine], 0, attributes, 0):
        raise OSError(ctypes.get_errno(), "sched_setattr")


@contextlib.contextmanager
def children_of(pid: int, module: str, treat: Callable[[int, threading.Event], None]) -> Iterator[None]:
    """Do something to each child process of a service that runs a module, as long as it lives.

    Args:
        pid: Process id of the service.
        module: Module in the command line of its children.
        treat: Takes the child's id, and an event that ends it; a thread of its own runs it again and again.
    """
    enough = threading.Event()

    def watch() -> None:
        while not enough.is_set():
            for child in _children(pid, module):
                with contextlib.suppress(ProcessLookupError):
                    treat(child, enough)
            enough.wait(_PERIOD_S)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def pin(processor: int) -> Callable[[int, threading.Event], None]:
    """Return a treatment: a child runs on one processor only."""

    def treat(child: int, enough: threading.Event) -> None:
        os.sched_setaffinity(child, {processor})
        enough.wait(0.1)

    return treat


def pause(share: float) -> Callable[[int, threading.Event], None]:
    """Return a treatment: a child runs for a share of each 10 ms only."""

    def treat(child: int, enough: threading.Event) -> None:
        os.kill(child, signal.SIGSTOP)
        enough.wait((1 - share) * _PERIOD_S)
        os.kill(child, signal.SIGCONT)
        enough.wait(share * _PERIOD_S)

    return treat


def _children(pid: int, module: str) -> list[int]:
    """Return the children whose command line has a module; /proc/PID/task/*/children costs next to nothing to read."""
    children: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            children += map(int, (thread / "children").read_text().split())
    return [child for child in children if _runs(child, module)]


def _runs(pid: int, module: str) -> bool:
    with contextlib.suppress(OSError):
        return module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


if __name__ == "__main__":  # python -m benchmarks.scheduling NANOSECONDS COMMAND …
    set_slice(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
