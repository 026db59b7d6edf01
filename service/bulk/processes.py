"""The processes that score, each given one part at a time over a pipe."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Self

from service.bulk import fork_server
from service.bulk.inputs import Part
from service.bulk.manifest import Done
from service.bulk.worker import Task, Worker
from service.errors import CandorError

Parts = Iterator[tuple[Part, str]]


class Team:
    """Processes that score. They are copies of a process that imports the modules while the caller loads the model.

    Args:
        processes: Number of processes; with one, the caller's process scores.

    Attributes:
        processes: Their number.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._members: dict[Connection, Any] = {}
        if processes > 1:
            self._context = fork_server.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._members.items():
            process.kill()  # a part is whole or absent, so there is nothing to wait for
            process.join()
            connection.close()

    def score(self, task: Task, found: Sequence[str], parts: Parts, finished: Callable[[Done], None]) -> None:
        """Score parts.

        Args:
            task: The run.
            found: Columns of the files.
            parts: Parts to score, each with the name of its file below the input; read as processes become free.
            finished: Called with each finished part, in the order of their ends.

        Raises:
            CandorError: A part cannot be scored, or a process ended.
        """
        if self.processes == 1:
            with Worker(task, found) as worker:
                for part, name in parts:
                    finished(worker.score(part, name))
            return
        for _ in range(self.processes):
            self._start((task, tuple(found)))
        _share_out(self._members, parts, finished)

    def _start(self, message: Any) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        self._members[ours] = process
        _send(ours, message)


def _send(connection: Connection, message: Any) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # the reader of its answer finds out why
        connection.send(message)


def _share_out(team: dict[Connection, Any], parts: Parts, finished: Callable[[Done], None]) -> None:
    busy = set(team)  # until they have loaded the model
    free: list[Connection] = []
    following = next(parts, None)
    while following is not None or busy:
        while free and following is not None:
            connection = free.pop()
            _send(connection, following)
            busy.add(connection)
            following = next(parts, None)  # cut while the processes are at work
        ready = wait(busy)
        for connection in [each for each in busy if each in ready]:
            answer = _answer(connection, team[connection])
            busy.discard(connection)
            free.append(connection)
            if isinstance(answer, Done):
                finished(answer)


def _answer(connection: Connection, process: Any) -> Any:
    """Return what a process sent: a finished part, or None when it is ready."""
    try:
        answer = connection.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        raise CandorError(
            "A process that scores has ended unexpectedly.",
            found=f"exit code {process.exitcode}",
            remedy="Go on with --resume. If it ran out of memory, choose fewer --processes or a smaller --part-rows.",
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _serve(connection: Connection) -> None:
    """Receive the task, then score parts until the other end of the pipe is closed, with its process or by it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the first process ends the others
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            with Worker(*connection.recv()) as worker:
                connection.send(None)
                while True:
                    connection.send(worker.score(*connection.recv()))
        except (CandorError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError, MemoryError) as error:
            connection.send(error)
