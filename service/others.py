"""What a process may ask all processes of its service; and the service that has one process only."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

FOLLOW: Final = "follow"
"""Read the active revisions, the desired models and the keys again."""
JOBS: Final = "jobs"
"""Look for new and cancelled jobs."""
FLUSH: Final = "flush"
"""Write the predictions that wait for the log; the answer is whether that succeeded."""
METRICS: Final = "metrics"
STATISTICS: Final = "statistics"
CONDITION: Final = "condition"
"""Whether the process serves what it should."""

ANSWERED_WITHIN_S: Final = 5.0
_DONE_WITHIN_S: Final = {FLUSH: 15.0, FOLLOW: 60.0}  # loading a revision can take long

Handlers = Mapping[str, Callable[[], Any]]
"""What a process answers, by question; a handler runs on a thread of its own and returns JSON-able values."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one process.

    Attributes:
        worker: Number of the worker, from 1; 0 for the supervisor.
        value: What it answered.
        missing: Why it did not answer: it has not started yet, is being restarted, or did not answer in time.
    """

    worker: int
    value: Any = None
    missing: Literal["starting", "restarting", "silent"] | None = None


def within_s(what: str) -> float:
    """Return the time for the answers to a question, in seconds."""
    return _DONE_WITHIN_S.get(what, ANSWERED_WITHIN_S)


class Others(Protocol):
    """All processes of a service, as one of them sees them.

    Attributes:
        leader: Whether this process runs what only one may run: jobs, monitors and retention.
        first: Whether this process hears of changes for all.
        stopping: Whether the service is about to stop: it still answers, but is not ready.
        supervised: Whether a supervisor has started it, which also holds the lock of the state.
        processes: Number of processes.
        rates: Open file in which all processes count the requests of API keys; None without others.
        secret: 32 random bytes of this start of the service, the same in all its processes and stored nowhere.
    """

    leader: bool
    first: bool
    stopping: bool
    supervised: bool
    processes: int
    rates: int | None
    secret: bytes

    def listen(self, handlers: Handlers) -> None:
        """Answer questions from now on."""

    async def join(self) -> None:
        """Become one of them: every later question is put to this process too."""

    def ask(self, what: str) -> list[Answer]:
        """Ask every process, this one included."""
        ...

    async def gather(self, what: str) -> list[Answer]:
        """Ask every process, this one included, from the event loop."""
        ...

    def tell(self, what: str) -> None:
        """Have all other processes do something; return when they have done it, or the time is up."""


class Alone:
    """The only process of its service.

    Args:
        leader: Whether it runs jobs, monitors and retention.
    """

    def __init__(self, *, leader: bool = True) -> None:
        self.leader, self.first, self.stopping, self.supervised, self.processes = leader, True, False, False, 1
        self.rates: int | None = None
        self.secret = secrets.token_bytes(32)
        self._handlers: Handlers = {}

    def listen(self, handlers: Handlers) -> None:
        """Answer questions from now on."""
        self._handlers = handlers

    async def join(self) -> None:
        """Return at once."""

    def ask(self, what: str) -> list[Answer]:
        """Ask this process."""
        return [Answer(1, self._handlers[what]())]

    async def gather(self, what: str) -> list[Answer]:
        """Ask this process."""
        return self.ask(what)

    def tell(self, what: str) -> None:
        """Tell nobody."""
