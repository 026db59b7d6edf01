"""The process that accepts connections, hands them to workers, and starts, watches and stops those.

It loads no model and answers no request, so nothing that a request does can harm it.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import tempfile
from typing import Any, Final

import structlog

from bundle.processors import available_cpus
from service.settings import Settings
from service.state.server_lock import ServerLock
from service.sums import Snapshot
from service.workers.listening import BACKLOG, address_of
from service.workers.plan import processors_each
from service.workers.questions import Questions
from service.workers.worker import Worker

logger = structlog.get_logger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0  # before a restart, doubled from each to the next
_HEALTHY_S = 60.0  # a worker that ran as long begins again with the first pause
# Pings are counted, not seconds: none is sent while the machine sleeps or this process is stopped.
_PING_EVERY_S = 1.0
_SILENT_PINGS = 5  # without an answer; a worker then gets connections only where all others are silent too
_HUNG_PINGS = 30  # beyond the longest run of a model, which may keep the event loop; the worker is then killed
_LOG_WRITTEN_S = 30.0  # beyond the drain: the log is written, the jobs are put back
_RETRY_S = 0.05  # of what could not be accepted, or handed over
_ACCEPTED_AT_ONCE: Final = 64


class Supervisor:
    """Run the workers of a service until a signal ends it.

    The first worker is the leader: the others start when it is ready, so that it alone updates the state's schema and
    makes first revisions. A worker that ends is started again.

    Args:
        settings: Settings of each worker.
        workers: Number of workers.
        listeners: Bound sockets, which listen when the first worker is ready.
        lock: Lock of the state, which the workers inherit; None on PostgreSQL.
    """

    def __init__(
        self, settings: Settings, workers: int, listeners: list[socket.socket], lock: ServerLock | None
    ) -> None:
        self._rates = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as this process
        self._first = {
            "settings": settings.model_dump(mode="json"),
            "workers": workers,
            "leave_within_s": settings.drain_timeout_s + _LOG_WRITTEN_S,
            "rates": (rates := self._rates.fileno()),
            "secret": secrets.token_hex(32),
        }
        self._stop_delay_s = settings.stop_delay_s
        self._hung_pings = _HUNG_PINGS + settings.run_timeout_s
        self._patience_s = settings.drain_timeout_s + _LOG_WRITTEN_S
        if workers > (cpus := available_cpus()):
            logger.warning("more workers than processors", workers=workers, processors=cpus)
        threads = processors_each(workers)
        self._workers = [Worker(number, threads) for number in range(1, workers + 1)]
        self._listeners = listeners
        self._scheme = "http" if settings.tls_cert is None else "https"
        self._inherited = (rates,) if lock is None else (rates, lock.fileno())
        self._questions = Questions(lambda worker, message: self._workers[worker - 1].send(message))
        self._stopping = asyncio.Event()
        self._asked_to_stop = False
        self._accepting = False
        self._refused: socket.socket | None = None  # a connection that no worker could take yet
        self._handed = self._restarts = 0
        self._status = 0
        self._kept: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        """Serve; return the exit status: that of the leader if it could not start at all."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        self._kept.append(asyncio.create_task(self._keep(self._workers[0])))
        watching = asyncio.create_task(self._watch())
        await self._stopping.wait()
        watching.cancel()
        self._listen()
        timer = loop.call_later(self._patience_s, self._kill)
        for worker in self._workers:
            if worker.member:
                worker.drain()
            else:
                worker.stop()
        await asyncio.gather(*self._kept)
        timer.cancel()
        return self._status

    def _stop(self) -> None:
        """Stop after the delay; at the second call at once, at the third end the workers."""
        if self._stopping.is_set():
            self._kill()
        elif self._asked_to_stop or not self._stop_delay_s:
            self._end()
        else:
            self._asked_to_stop = True
            for worker in self._workers:
                worker.send({"stopping": True})
            asyncio.get_running_loop().call_later(self._stop_delay_s, self._end)

    def _end(self) -> None:
        for listener in self._listeners if self._accepting else ():
            self._accept(listener)  # clients that are connected already, though not accepted
        self._stopping.set()

    def _kill(self) -> None:
        logger.error("workers are killed")
        for worker in self._workers:
            worker.kill()

    async def _keep(self, worker: Worker) -> None:
        """Start a worker, and again whenever it ends."""
        loop = asyncio.get_running_loop()
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = loop.time()
            wished = False
            try:
                async for message in worker.start({**self._first, "worker": worker.number}, self._inherited):
                    wished = wished or "leave" in message
                    self._heard(worker, message)
            except OSError as error:  # too little memory, say
                logger.error("worker not started", worker=worker.number, error=str(error))
            status = await worker.end()
            self._questions.ended(worker.number)
            self._listen()
            if self._stopping.is_set():
                return
            if not worker.joined and worker.number == 1:  # it has said why
                self._status = status if status > 0 else 1
                self._stopping.set()
                return
            if loop.time() - began > _HEALTHY_S:
                pause_s = _FIRST_PAUSE_S
            self._restarts += 1
            log = logger.info if wished and status == 0 else logger.error
            log("worker ended", worker=worker.number, pid=worker.pid, status=status, restart_in_s=pause_s)
            try:
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            except TimeoutError:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _watch(self) -> None:
        """Ask the members again and again whether their event loops run, and kill one that never answers."""
        while True:
            await asyncio.sleep(_PING_EVERY_S)
            for worker in (each for each in self._workers if each.member):
                worker.send({"ping": True})
                worker.unanswered += 1
                if worker.unanswered == _SILENT_PINGS + 1:
                    logger.error("worker does not answer", worker=worker.number, pid=worker.pid)
                elif 0 < worker.unanswered - self._hung_pings <= 1:
                    logger.error("worker killed, because it does not answer", worker=worker.number, pid=worker.pid)
                    worker.kill()

    def _heard(self, worker: Worker, message: dict[str, Any]) -> None:
        if "answer" in message:
            self._questions.answered(
                worker.number, message["answer"], message.get("value"), failed=message.get("failed", False)
            )
        elif "pong" in message:
            worker.unanswered = 0
        elif "closed" in message:
            worker.heard_closed(message["closed"])
        elif "ask" in message:
            members = {each.number for each in self._workers if each.member}
            missing = {
                each.number: "restarting" if each.joined else "starting" for each in self._workers if not each.member
            }
            if message["others"]:
                members.discard(worker.number)
            self._questions.put(
                worker.number,
                message["id"],
                message["ask"],
                members=members,
                missing=missing,
                within_s=message["within_s"],
                own=self._metrics(),
            )
        elif "leave" in message:
            worker.drain()
            self._listen()
        elif "ready" in message:
            self._join(worker)

    def _join(self, worker: Worker) -> None:
        worker.send({"joined": True})
        if self._stopping.is_set():
            worker.drain()
            return
        first = not worker.joined
        worker.member = worker.joined = True
        logger.info("worker ready", worker=worker.number, pid=worker.pid)
        self._listen()
        if first and worker.number == 1:
            self._kept += [asyncio.create_task(self._keep(other)) for other in self._workers[1:]]
            for listener in self._listeners:
                text = f"Candor running on {address_of(listener, self._scheme)} (Press CTRL+C to quit)"
                logger.info(text, workers=len(self._workers))

    def _listen(self) -> None:
        """Accept connections while a worker can take them; until then they wait in the kernel's queue."""
        loop = asyncio.get_running_loop()
        if self._stopping.is_set():
            for listener in self._listeners:
                loop.remove_reader(listener)
                listener.close()
            self._listeners = []
            if self._refused is not None:
                self._refused.close()
                self._refused = None
            return
        accepting = self._refused is None and any(worker.member for worker in self._workers)
        if not accepting:
            self._pause()
        elif not self._accepting:
            for listener in self._listeners:
                listener.listen(BACKLOG)
                loop.add_reader(listener, self._accept, listener)
            self._accepting = True

    def _pause(self) -> None:
        for listener in self._listeners if self._accepting else ():
            asyncio.get_running_loop().remove_reader(listener)
        self._accepting = False

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # too many open files, say
                logger.error("connection not accepted", error=str(error))
                self._pause()
                asyncio.get_running_loop().call_later(_RETRY_S, self._listen)
                return
            if not self._hand(client):
                return

    def _hand(self, client: socket.socket) -> bool:
        """Hand a connection to the worker that answers and has the fewest; keep it a while if none can take it."""
        self._refused = None
        self._handed += 1
        for worker in sorted(self._workers, key=lambda each: (_is_silent(each), each.open, each.given)):
            if worker.member and worker.hand(client, self._handed):
                client.close()
                self._listen()
                return True
        self._refused = client
        self._listen()
        asyncio.get_running_loop().call_later(_RETRY_S, self._retry)
        return False

    def _retry(self) -> None:
        if self._refused is not None:
            self._hand(self._refused)

    def _metrics(self) -> Snapshot:
        ready = sum(worker.member and not _is_silent(worker) for worker in self._workers)
        return [
            ["candor_workers", "gauge", "Worker processes.", [["candor_workers", [], len(self._workers)]]],
            ["candor_workers_ready", "gauge", "Worker processes that take connections and answer.",
             [["candor_workers_ready", [], ready]]],
            ["candor_worker_restarts", "counter", "Worker processes that ended and were started again.",
             [["candor_worker_restarts_total", [], self._restarts]]],
        ]  # fmt: skip


def _is_silent(worker: Worker) -> bool:
    return worker.unanswered > _SILENT_PINGS
