"""Grouped writes: requests that wait for the same lock share one transaction."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import StateUnavailableError

_THREADS = 8

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting(Generic[Request, Outcome]):
    request: Request
    size: int
    done: Future[Outcome]


class GroupedWrites(Generic[Request, Outcome]):
    """Writes what waits under a key in one transaction, one at a time for each key.

    A request that finds no write of its key under way is written at once; those that come meanwhile are the next group.

    Args:
        write: Writes requests of one key in one transaction and returns an outcome for each, in their order. An outcome
            that is an exception is raised to its caller alone. If it raises, nothing is written.
        at_most: Maximum size of a group; a larger request is written alone.
    """

    def __init__(
        self, write: Callable[[str, Sequence[Request]], Sequence[Outcome | Exception]], *, at_most: int
    ) -> None:
        self._write = write
        self._at_most = at_most
        self._waiting: dict[str, deque[_Waiting[Request, Outcome]]] = defaultdict(deque)
        self._writing: set[str] = set()
        self._changed = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="grouped-writes")

    def submit(self, key: str, request: Request, size: int) -> Future[Outcome]:
        """Queue a request and return a future that is done after the commit; cancelling it withdraws the request."""
        waiting: _Waiting[Request, Outcome] = _Waiting(request, size, Future())
        with self._changed:
            self._waiting[key].append(waiting)
            if key in self._writing:
                return waiting.done
            self._writing.add(key)
        self._threads.submit(self._run, key)
        return waiting.done

    def _run(self, key: str) -> None:
        with self._changed:
            group = self._take(self._waiting[key])
        if running := [waiting for waiting in group if waiting.done.set_running_or_notify_cancel()]:
            self._settle(key, running)
        with self._changed:
            if not self._waiting[key]:
                del self._waiting[key]
                self._writing.remove(key)
                return
        self._threads.submit(self._run, key)  # behind other keys

    def _take(self, waiting: deque[_Waiting[Request, Outcome]]) -> list[_Waiting[Request, Outcome]]:
        group = [waiting.popleft()]
        size = group[0].size
        while waiting and size + waiting[0].size <= self._at_most:
            group.append(waiting.popleft())
            size += group[-1].size
        return group

    def _settle(self, key: str, group: list[_Waiting[Request, Outcome]]) -> None:
        try:
            outcomes = self._write(key, [waiting.request for waiting in group])
        except Exception as error:  # noqa: BLE001 — raised to those that wait
            if len(group) == 1 or isinstance(error, StateUnavailableError):
                for waiting in group:
                    waiting.done.set_exception(error)
            else:  # perhaps one of them cannot be written: the others must not fail with it
                for waiting in group:
                    self._settle(key, [waiting])
            return
        for waiting, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Exception):
                waiting.done.set_exception(outcome)
            else:
                waiting.done.set_result(outcome)
