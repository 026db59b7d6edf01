"""A time limit on work that cannot be stopped from outside, such as the opening of a graph in C++."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")


class TooLongError(TimeoutError):
    """The work takes longer than its limit."""


def within(seconds: float, work: Callable[[], _Found], give_up: Callable[[], object]) -> _Found:
    """Return what `work` returns, or raise what it raises.

    Args:
        seconds: Maximum time for it.
        work: What is done, in a thread of its own. Work that takes too long goes on until it ends, or the process does.
        give_up: Called after that time, to tell the work.

    Raises:
        TooLongError: It takes longer.
    """
    found: list[_Found] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 — raised in the thread that waits
            failed.append(error)

    thread = threading.Thread(target=run, name="time limit", daemon=True)
    thread.start()
    thread.join(seconds)
    if found:
        return found[0]
    if failed:
        raise failed[0]
    give_up()
    raise TooLongError(f"longer than {seconds:g} s")
