"""Claims on cells: workers on one machine, or on several that share a folder, never take the same cell.

A claim is a file that only one worker can create. Its owner touches it regularly. A claim is stale if it has not been
touched for long, or if its owner was a process of this machine that has ended; the worker that creates the file with
the next number takes the cell over. Numbers only rise: two workers that find the same stale claim cannot both succeed,
and an owner that was suspended sees that it lost the cell.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.errors import TrainingError

HEARTBEAT_S = 5.0
STALE_S = 120.0
_PREFIX = "claim."
_HOST = socket.gethostname()


class LostClaimError(TrainingError):
    """Another worker took the cell over after this one had been silent for too long."""


class Claim:
    """A cell held by this worker.

    Args:
        path: The claim's file.
        number: Its number.
        owner: Content of the file.
    """

    def __init__(self, path: Path, number: int, owner: str) -> None:
        self._path, self._number, self._owner = path, number, owner

    def check(self) -> None:
        """Raise LostClaimError if another worker has taken the cell over."""
        newest = _newest(self._path.parent)
        if newest != self._number or self._path.read_text(encoding="utf-8") != self._owner:
            raise LostClaimError(f"{self._path.parent} was taken over by another worker")

    def touch(self) -> None:
        """Show that the owner is alive."""
        os.utime(self._path)

    def release(self, *, done: bool) -> None:
        """Give the cell back: free for others at once, or finished, so that no claim remains."""
        if done:
            for path in self._path.parent.glob(f"{_PREFIX}*"):
                path.unlink(missing_ok=True)
        elif self._path.exists():
            os.utime(self._path, (0, 0))


@contextmanager
def claim(folder: Path, *, stale_s: float = STALE_S, heartbeat_s: float = HEARTBEAT_S) -> Iterator[Claim | None]:
    """Try to claim a cell for the length of a block.

    Args:
        folder: The cell's folder; must exist.
        stale_s: Seconds after which an untouched claim may be taken over.
        heartbeat_s: Seconds between touches.

    Yields:
        The claim; None if another worker has the cell.
    """
    taken = _take(folder, stale_s)
    if taken is None:
        yield None
        return
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(heartbeat_s):
            try:
                taken.touch()
            except FileNotFoundError:
                return  # finished, perhaps by the worker that took it over

    thread = threading.Thread(target=beat, name=f"heartbeat of {folder.name}", daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        stop.set()
        thread.join()
        taken.release(done=False)


def _take(folder: Path, stale_s: float) -> Claim | None:
    number = _newest(folder)
    newest = folder / f"{_PREFIX}{number}"
    if number and _age(newest) <= stale_s and not _has_ended(newest):
        return None
    owner = json.dumps({"host": _HOST, "process": os.getpid(), "id": uuid.uuid4().hex})
    path = folder / f"{_PREFIX}{number + 1}"
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(owner)
    except FileExistsError:
        return None
    return Claim(path, number + 1, owner)


def silent(folder: Path, heartbeat_s: float) -> bool:
    """Return whether a cell is claimed, but its owner has missed several touches: it may become stale."""
    number = _newest(folder)
    return bool(number) and _age(folder / f"{_PREFIX}{number}") > 3 * heartbeat_s


def _has_ended(claim: Path) -> bool:
    """Return whether the owner of a claim was a process of this machine that no longer runs."""
    try:
        owner = json.loads(claim.read_text(encoding="utf-8"))
        if owner["host"] != _HOST:
            return False
        os.kill(owner["process"], 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, TypeError, KeyError):  # finished meanwhile, being written, or of another user
        return False
    return False


def _newest(folder: Path) -> int:
    """Return the number of the newest claim; 0 without claims."""
    numbers = (path.name.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*"))
    return max((int(number) for number in numbers if number.isdigit()), default=0)


def _age(path: Path) -> float:
    """Return the seconds since a file was touched, by its file system's clock; 0 if the file is gone."""
    probe = path.with_name(f".now.{uuid.uuid4().hex}")
    try:
        probe.touch()
        now = probe.stat().st_mtime
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        probe.unlink(missing_ok=True)
