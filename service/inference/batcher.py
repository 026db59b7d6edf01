"""A bounded queue in front of one worker thread that takes everything that waits.

Work-conserving: a free worker never waits for more unless a delay is configured. A full queue refuses at once. Work
whose deadline has passed, or whose caller has gone, is dropped when its turn comes, before it costs anything. A batch
that fails is run again one piece at a time, so that a poisoned input fails alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from service.errors import DeadlineExceededError, OverloadedError


class Batchable(Protocol):
    """What the queue needs to know of a piece of work."""

    @property
    def rows(self) -> int:
        """Rows that it adds to a batch, at least 1."""

    @property
    def lane(self) -> object:
        """Only work of the same lane (by identity) shares a batch."""


Work = TypeVar("Work", bound=Batchable)
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Queued(Generic[Work, Result]):
    work: Work
    deadline: float
    future: asyncio.Future[Result]
    loop: asyncio.AbstractEventLoop


_Outcome = tuple[_Queued[Work, Result], Result | Exception]


class Batcher(Generic[Work, Result]):
    """Gathers work into batches and hands each caller its own result, exactly once.

    Args:
        run: Takes a non-empty list of work of one lane and returns one result for each, in order. Called on the worker
            thread only.
        max_batch_size: Rows in a batch; larger single pieces of work run alone.
        max_queued_rows: Rows that may wait.
        delay_s: How long a free worker waits for a batch to fill; 0 takes what is there.
        name: Name of the worker thread.
    """

    def __init__(
        self,
        run: Callable[[list[Work]], Sequence[Result]],
        *,
        max_batch_size: int,
        max_queued_rows: int,
        delay_s: float = 0.0,
        name: str = "batcher",
    ) -> None:
        self._run = run
        self._max_batch_size = max_batch_size
        self._max_queued_rows = max_queued_rows
        self._delay_s = delay_s
        self._queue: deque[_Queued[Work, Result]] = deque()
        self._queued_rows = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def queued_rows(self) -> int:
        """Rows that wait now."""
        return self._queued_rows

    async def submit(self, work: Work, *, deadline_s: float) -> Result:
        """Queue `work` and wait for its result. Cancelling the caller drops the work if it has not begun.

        Raises:
            OverloadedError: The queue is full, or the service is stopping.
            DeadlineExceededError: Its turn did not come within `deadline_s` seconds.
        """
        loop = asyncio.get_running_loop()
        queued = _Queued[Work, Result](work, time.monotonic() + deadline_s, loop.create_future(), loop)
        with self._changed:
            # An empty queue takes any single piece of work, however large: its size was limited at the door.
            full = self._queue and self._queued_rows + work.rows > self._max_queued_rows
            if full or self._closing:
                raise OverloadedError(
                    "The service is stopping." if self._closing else "Too many predictions are waiting.",
                    found=f"{self._queued_rows} rows waiting",
                    expected=f"at most {self._max_queued_rows}",
                    remedy="Try again after the seconds that Retry-After names.",
                )
            self._queue.append(queued)
            self._queued_rows += work.rows
            self._changed.notify()
        return await queued.future

    def close(self) -> None:
        """Refuse new work, finish what waits, and stop the worker."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._take():
            self._answer(self._attempt(batch))

    def _take(self) -> list[_Queued[Work, Result]]:
        """Return the next batch of one lane; empty only when closing."""
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    return []
                if self._delay_s and not self._closing and self._queued_rows < self._max_batch_size:
                    self._changed.wait_for(self._is_full, timeout=self._delay_s)
                taken = self._take_lane()
            if taken:
                return taken

    def _is_full(self) -> bool:
        return self._closing or self._queued_rows >= self._max_batch_size

    def _take_lane(self) -> list[_Queued[Work, Result]]:
        now = time.monotonic()
        taken: list[_Queued[Work, Result]] = []
        rows = 0
        while self._queue:
            queued = self._queue[0]
            fits = not taken or (
                queued.work.lane is taken[0].work.lane and rows + queued.work.rows <= self._max_batch_size
            )
            if not fits:
                break
            self._queue.popleft()
            self._queued_rows -= queued.work.rows
            if queued.future.cancelled():
                continue
            if now > queued.deadline:
                error = DeadlineExceededError(
                    "The prediction did not start before its deadline.",
                    remedy="Try again, send less at once, or raise CANDOR_DEADLINE_S.",
                )
                self._answer([(queued, error)])
                continue
            taken.append(queued)
            rows += queued.work.rows
        return taken

    def _answer(self, outcomes: list[_Outcome[Work, Result]]) -> None:
        """Hand outcomes over to their event loops, one wake-up for each loop."""
        for loop in {queued.loop for queued, _ in outcomes}:
            own = [(queued.future, outcome) for queued, outcome in outcomes if queued.loop is loop]
            with contextlib.suppress(RuntimeError):  # the loop is closed: its callers are gone
                loop.call_soon_threadsafe(_deliver, own)

    def _attempt(self, batch: list[_Queued[Work, Result]]) -> list[_Outcome[Work, Result]]:
        try:
            return list(zip(batch, self._run([queued.work for queued in batch]), strict=True))
        except Exception as error:  # noqa: BLE001 — whatever a model raises belongs to its callers, not to this thread
            if len(batch) == 1:
                return [(batch[0], error)]
            return [outcome for queued in batch for outcome in self._attempt([queued])]


def _deliver(outcomes: list[tuple[asyncio.Future[Result], Result | Exception]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
