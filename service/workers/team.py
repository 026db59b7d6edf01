"""A worker's side of the channel to its supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLateError
from typing import Any, Final

import structlog

from service.others import FOLLOW, Answer, Handlers, within_s

logger = structlog.get_logger(__name__)

_GRACE_S: Final = 5.0  # beyond the supervisor's own limits
_AT_ONCE: Final = 8  # questions answered at a time


class Team:
    """The processes of a service, asked through the supervisor.

    Args:
        control: Stream of JSON lines from and to the supervisor.
        connections: Socket over which the supervisor hands over accepted connections; its end asks for the worker's.

    Attributes:
        settings: Settings of this worker, as JSON-able values.
        number: Number of this worker, from 1.
        leader: Whether it runs what only one may run.
        first: Whether it hears of changes for all.
        stopping: Whether the service is about to stop.
        supervised: True.
        processes: Number of workers.
        rates: Open file in which all workers count the requests of API keys.
        secret: Random bytes of this start of the service.
    """

    def __init__(self, control: socket.socket, connections: socket.socket) -> None:
        self.connections = connections
        self._control = control
        self._lines = control.makefile("rb")
        first = json.loads(self._lines.readline())
        self.settings: dict[str, Any] = first["settings"]
        self.number: int = first["worker"]
        self.processes: int = first["workers"]
        self.rates: int | None = first["rates"]
        self.secret = bytes.fromhex(first["secret"])
        self.first = self.number == 1
        self.leader = self.first and self.settings["background"]
        self.stopping, self.supervised = False, True
        self._leave_within_s: float = first["leave_within_s"]
        self._handlers: Handlers = {}
        self._joined: Future[None] = Future()
        self._asked: dict[int, Future[list[Answer]]] = {}
        self._numbers = itertools.count()
        self._sending = threading.Lock()
        self._alone = False
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="team")
        self._follower = ThreadPoolExecutor(1, thread_name_prefix="follow")  # waits for loads, all others do not
        threading.Thread(target=self._hear, name="team", daemon=True).start()

    def listen(self, handlers: Handlers) -> None:
        """Answer questions from now on."""
        self._handlers = handlers

    async def join(self) -> None:
        """Become one of them: every later question is put to this worker too."""
        self._loop = asyncio.get_running_loop()
        self._send({"ready": True})
        await asyncio.wrap_future(self._joined)

    def leave(self) -> None:
        """Ask the supervisor for no more connections; it then closes `connections`."""
        self._send({"leave": True})

    def closed(self, connections: int) -> None:
        """Tell how many connections of those handed over are closed by now."""
        self._send({"closed": connections})

    def ask(self, what: str) -> list[Answer]:
        """Ask every process, this one included; without a supervisor this one only."""
        try:
            return self._put(what, others=False).result(within_s(what) + _GRACE_S)
        except (ConnectionError, TooLateError):
            return [Answer(self.number, self._handlers[what]())]

    async def gather(self, what: str) -> list[Answer]:
        """Ask every process, this one included; without a supervisor this one only."""
        asked = asyncio.wrap_future(self._put(what, others=False))
        try:
            return await asyncio.wait_for(asked, within_s(what) + _GRACE_S)
        except (ConnectionError, TimeoutError):
            return [Answer(self.number, self._handlers[what]())]

    def tell(self, what: str) -> None:
        """Have all other workers do something; return when they have done it, or the time is up."""
        try:
            answers = self._put(what, others=True).result(within_s(what) + _GRACE_S)
        except (ConnectionError, TooLateError):
            return  # the supervisor is gone, so all workers stop
        if silent := [answer.worker for answer in answers if answer.missing == "silent"]:
            logger.error("workers do not answer", asked=what, workers=silent)

    def _put(self, what: str, *, others: bool) -> Future[list[Answer]]:
        number, future = next(self._numbers), Future[list[Answer]]()
        self._asked[number] = future
        if self._alone:
            self._told(number, ConnectionError())
        else:
            self._send({"ask": what, "id": number, "within_s": within_s(what), "others": others})
        return future

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._sending:
            try:
                self._control.sendall(data)
            except OSError:
                return  # noticed where it is read

    def _hear(self) -> None:
        """Take messages until the supervisor is gone."""
        try:
            while (line := self._lines.readline()).endswith(b"\n"):  # a killed supervisor may leave a part of one
                message = json.loads(line)
                if "do" in message:
                    pool = self._follower if message["do"] == FOLLOW else self._pool
                    pool.submit(self._do, message["do"], message["id"])
                elif "ping" in message:
                    with contextlib.suppress(RuntimeError):  # the loop has ended
                        self._loop.call_soon_threadsafe(self._send, {"pong": True})
                elif "joined" in message:
                    self._joined.set_result(None)
                elif "stopping" in message:
                    self.stopping = True
                else:
                    self._told(message["told"], [Answer(*answer) for answer in message["answers"]])
        except OSError:
            pass
        self._alone = True
        for number in list(self._asked):
            self._told(number, ConnectionError())
        if not self._joined.done():
            self._joined.set_exception(ConnectionError("the supervisor is gone"))
        time.sleep(self._leave_within_s)  # the end of `connections` stops the worker; this is for one that hangs
        os._exit(1)

    def _told(self, number: int, told: list[Answer] | ConnectionError) -> None:
        """End a question, unless it has ended or nobody waits for its answer any more."""
        future = self._asked.pop(number, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(told, ConnectionError):
            future.set_exception(told)
        else:
            future.set_result(told)

    def _do(self, what: str, number: int) -> None:
        try:
            self._send({"answer": number, "value": self._handlers[what]()})
        except Exception:
            logger.exception("a question of another worker failed", asked=what)
            self._send({"answer": number, "failed": True})
