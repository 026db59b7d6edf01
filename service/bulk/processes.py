"""The processes that score, each given one part at a time over a pipe."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from service.bulk.inputs import Part
from service.bulk.manifest import Done
from service.bulk.worker import Task, Worker
from service.errors import CandorError

Parts = Iterator[tuple[Part, str]]


def score_all(task: Task, found: Sequence[str], parts: Parts, processes: int, finished: Callable[[Done], None]) -> None:
    """Score parts: in this process if one is enough, else in so many processes of their own.

    Args:
        task: The run.
        found: Columns of the files.
        parts: Parts to score, each with the name of its file below the input; read as processes become free.
        processes: Number of processes.
        finished: Called with each finished part, in the order of their ends.

    Raises:
        CandorError: A part cannot be scored, or a process ended. No process is left.
    """
    if processes == 1:
        with Worker(task, found) as worker:
            for part, name in parts:
                finished(worker.score(part, name))
        return
    context = multiprocessing.get_context("spawn")  # a copy of this process would copy the threads of ONNX Runtime
    team: dict[Connection, Any] = {}
    try:
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, task, tuple(found)), daemon=True)
            process.start()
            theirs.close()
            team[ours] = process
        _share_out(team, parts, finished)
    finally:
        for connection, process in team.items():
            process.kill()  # a part is whole or absent, so there is nothing to wait for
            process.join()
            connection.close()


def _share_out(team: dict[Connection, Any], parts: Parts, finished: Callable[[Done], None]) -> None:
    busy = set(team)  # until they have loaded the model
    free: list[Connection] = []
    following = next(parts, None)
    while following is not None or busy:
        while free and following is not None:
            connection = free.pop()
            with suppress(BrokenPipeError, ConnectionResetError):  # what it is about is read below
                connection.send(following)
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


def _serve(connection: Connection, task: Task, found: Sequence[str]) -> None:
    """Score parts until the other end of the pipe is closed, with its process or by it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the first process ends the others
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            with Worker(task, found) as worker:
                connection.send(None)
                while True:
                    connection.send(worker.score(*connection.recv()))
        except (CandorError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError, MemoryError) as error:
            connection.send(error)
