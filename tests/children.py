"""The children of a process, as Linux' /proc lists them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def children_of(process: int | str = "self") -> list[int]:
    """Return the children of all threads of a process; a thread may end while they are read."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, (thread / "children").read_text().split())
    return found
