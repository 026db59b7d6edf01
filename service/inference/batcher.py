"""A bounded queue in front of one worker thread that takes everything that waits.

Work-conserving: a free worker never waits for more unless a delay is configured. A queue refuses work at once when it
is full, or when the work would miss its deadline. Overdue work, and work whose caller has gone, is dropped when its
turn comes. A failed batch is halved until the bad inputs fail alone, unless no input is to blame, or a run was ended.

A batch that is quickly done runs on the event loop's thread if the worker sleeps: Python runs one thread at a time, so
waking another costs more than it saves. Queues share that thread, so that only one of them runs there and
the others' workers run beside it.

Lanes share the worker but not a batch. They take turns, so that a crowded lane does not delay the others. Each model
has its own worker: docs/explanation/decisions/0004-one-worker-for-each-model.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from service.errors import DeadlineExceededError, OverloadedError, RunTooLongError, UnavailableError, stopping
from service.inference.statistics import Refusals

_SMOOTHING = 0.1  # weight of the newest batch in the expected time per row
_MARGIN = 0.8  # share of its deadline that work may be expected to wait: estimates err
_FOREVER = -1.0  # as a lock's timeout


class Batchable(Protocol):
    """A piece of work in the queue."""

    @property
    def rows(self) -> int:
        """Rows that it adds to a batch, at least 1."""

    @property
    def lane(self) -> Hashable:
        """Only work of the same lane shares a batch."""


Work = TypeVar("Work", bound=Batchable)
Result = TypeVar("Result")
Given = TypeVar("Given", contravariant=True)


class Waiting(Protocol[Given]):
    """What waits for a result: an `asyncio.Future`, or whatever has these methods of it. All are called on its loop."""

    def done(self) -> bool:
        """Return whether nothing waits any more."""

    def cancelled(self) -> bool:
        """Return whether it was given up; called on any thread."""

    def set_result(self, result: Given, /) -> None:
        """Take the result."""

    def set_exception(self, exception: Exception, /) -> None:
        """Take the reason why there is no result."""


@dataclass(slots=True, eq=False)
class _Queued(Generic[Work, Result]):
    work: Work
    queued_at: float
    deadline: float
    waiting: Waiting[Result]
    loop: asyncio.AbstractEventLoop


class LoopThread:
    """The thread of an event loop, where one queue at a time may run a batch: the workers of others run beside it.

    Attributes:
        taken_by: The queue that is about to run a batch there; None if it is free.
    """

    def __init__(self) -> None:
        self.taken_by: object = None


_Outcome = tuple[_Queued[Work, Result], Result | Exception]


class Batcher(Generic[Work, Result]):
    """Gather work into batches and give each caller its own result, exactly once.

    Args:
        run: Takes a non-empty list of work of one lane and returns one result for each, in order. Never called by two
            threads at once; when it raises, it is called again with parts of the list.
        max_batch_size: Rows in a batch; larger single pieces of work run alone.
        max_queued_rows: Maximum queued rows.
        delay_s: Time that the oldest work waits for a batch to fill; 0 takes what is queued.
        name: Name of the worker thread.
        loop_thread: Shared with the other queues of the event loop; None without others.

    Attributes:
        refusals: Work without a result, by reason.
    """

    def __init__(
        self,
        run: Callable[[list[Work]], Sequence[Result]],
        *,
        max_batch_size: int,
        max_queued_rows: int,
        delay_s: float = 0.0,
        name: str = "batcher",
        loop_thread: LoopThread | None = None,
    ) -> None:
        self.refusals = Refusals()
        self._run = run
        self._max_batch_size = max_batch_size
        self._max_queued_rows = max_queued_rows
        self._delay_s = delay_s
        # In the order of their turns; a lane exists while work is queued in it.
        self._lanes: dict[Hashable, deque[_Queued[Work, Result]]] = {}
        self._queued_rows = 0
        self._running_rows = 0
        self._row_s = 0.0
        self._loop_thread = loop_thread or LoopThread()
        self._run_due: asyncio.AbstractEventLoop | None = None  # will call `_run_here` soon
        self._turn = threading.Lock()  # held by the running thread
        self._closing = False
        # Two bare locks instead of a condition, which creates a lock per wait: every request passes here.
        self._lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._wakes_at_rows = 0  # the worker sleeps until this many rows are queued; 0 while it is awake
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def queued_rows(self) -> int:
        """Number of queued rows."""
        return self._queued_rows

    def check_room(self) -> None:
        """Refuse work early if the queue is full.

        Raises:
            OverloadedError: The queue is full, or the service is stopping.
        """
        if self._closing or self._queued_rows >= self._max_queued_rows:
            with self._lock:
                self.refusals.full += 1
            raise self._refusal()

    async def submit(self, work: Work, *, deadline_s: float, here_s: float = 0.0) -> Result:
        """Queue `work` and wait for its result, see `put`. Cancelling the caller drops work that has not begun."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.put(work, future, deadline_s=deadline_s, here_s=here_s)
        return await future

    def put(
        self, work: Work, waiting: Waiting[Result], *, deadline_s: float, here_s: float = 0.0, alone: bool = False
    ) -> None:
        """Queue `work`; call on a running event loop.

        Args:
            work: The work.
            waiting: Gets the result or the error, on this event loop.
            deadline_s: Queueing deadline in seconds.
            here_s: A batch that is expected to take no longer may run on this thread, and holds up the event loop
                meanwhile; 0, or a delay, leaves it to the worker.
            alone: Whether no other work can arrive together with this one. A batch that may run on this thread then
                runs before `put` returns.

        Raises:
            OverloadedError: The queue is full, the deadline would be missed, or the service is stopping.
        """
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        # Not _Queued[Work, Result](…): subscripting costs more than making it.
        queued: _Queued[Work, Result] = _Queued(work, now, now + deadline_s, waiting, loop)
        rows = work.rows
        here = False
        with self._lock:
            # An empty queue takes any single piece of work: its size was limited before.
            if self._closing or (self._queued_rows and self._is_crowded(rows, deadline_s)):
                self.refusals.full += 1
                raise self._refusal()
            self._lanes.setdefault(work.lane, deque()).append(queued)
            self._queued_rows += rows
            if self._wakes_at_rows and self._queued_rows >= self._wakes_at_rows and self._run_due is not loop:
                here = self._start(loop, here_s)
        if here and alone:
            self._run_here(here_s)
        elif here:
            loop.call_soon(self._run_here, here_s)  # the loop first reads all requests that arrived together

    def _start(self, loop: asyncio.AbstractEventLoop | None, here_s: float) -> bool:
        """Wake the worker, or return True if a batch is short enough to run on the thread of `loop`."""
        first = next(iter(self._lanes.values()))[0].work.rows
        batch_s = max(first, min(self._queued_rows, self._max_batch_size)) * self._row_s
        if (
            loop
            and not self._run_due
            and not self._loop_thread.taken_by
            and not self._delay_s
            and 0 < batch_s <= here_s
        ):
            self._loop_thread.taken_by = self
            self._run_due = loop
            return True
        self._wake_up()
        return False

    def _run_here(self, here_s: float) -> None:
        """Run one batch on the event loop's thread, unless the worker was woken meanwhile."""
        with self._lock:
            loop, self._run_due, self._loop_thread.taken_by = self._run_due, None, None
            if not self._wakes_at_rows or not self._lanes or not self._turn.acquire(blocking=False):
                return
            taken, outcomes = self._take_turn()
        try:
            if taken:
                outcomes += self._attempt(taken)
        finally:
            self._running_rows = 0
            self._turn.release()
        self._hand_over(outcomes, here=loop)
        with self._lock:
            here = bool(self._lanes and self._wakes_at_rows) and self._start(loop, here_s)
        if here and loop:
            loop.call_soon(self._run_here, here_s)

    def close(self) -> None:
        """Refuse new work, finish queued and running work, and stop the worker."""
        with self._lock:
            self._closing = True
            if self._wakes_at_rows:
                self._wake_up()
        self._thread.join()
        with self._turn:  # what runs on its caller's thread
            pass

    def _is_crowded(self, rows: int, deadline_s: float) -> bool:
        if self._queued_rows + rows > self._max_queued_rows:
            return True
        return (self._queued_rows + self._running_rows) * self._row_s > _MARGIN * deadline_s

    def _refusal(self) -> OverloadedError:
        if self._closing:
            return stopping()
        return OverloadedError(
            "Too many predictions are queued.",
            found=f"{self._queued_rows} rows waiting",
            expected=f"at most {self._max_queued_rows}, or fewer if they would miss their deadline",
            remedy="Retry after the number of seconds in Retry-After.",
        )

    def _wake_up(self) -> None:
        self._wakes_at_rows = 0
        self._wake.release()

    def _sleep(self, timeout_s: float) -> None:
        """Wait on the worker thread until woken. The caller has set `_wakes_at_rows`."""
        if not self._wake.acquire(timeout=timeout_s):
            with self._lock:
                woken_late = not self._wakes_at_rows
                self._wakes_at_rows = 0
            if woken_late:
                self._wake.acquire()

    def _work(self) -> None:
        while batch := self._take():
            with self._turn:
                outcomes = self._attempt(batch)
            self._running_rows = 0
            self._hand_over(outcomes)

    def _take(self) -> list[_Queued[Work, Result]]:
        """Return the next batch of one lane, empty only when closing."""
        while True:
            taken: list[_Queued[Work, Result]] = []
            late: list[_Outcome[Work, Result]] = []
            pause_s: float | None = None
            with self._lock:
                if not self._lanes:
                    if self._closing:
                        return []
                    self._wakes_at_rows, pause_s = 1, _FOREVER
                elif (to_fill_s := self._time_to_fill()) > 0:
                    self._wakes_at_rows, pause_s = self._max_batch_size, to_fill_s
                else:
                    taken, late = self._take_turn()
            if pause_s is not None:
                self._sleep(pause_s)
            if late:
                self._hand_over(late)
            if taken:
                return taken

    def _time_to_fill(self) -> float:
        if not self._delay_s or self._closing or self._queued_rows >= self._max_batch_size:
            return 0.0
        oldest = min(waiting[0].queued_at for waiting in self._lanes.values())
        return oldest + self._delay_s - time.monotonic()

    def _take_turn(self) -> tuple[list[_Queued[Work, Result]], list[_Outcome[Work, Result]]]:
        """Take a batch, and overdue work before it, from the lane whose turn it is. The lane moves to the end."""
        now = time.monotonic()
        taken: list[_Queued[Work, Result]] = []
        late: list[_Outcome[Work, Result]] = []
        rows = 0
        lane = next(iter(self._lanes))
        waiting = self._lanes.pop(lane)
        while waiting and (not taken or rows + waiting[0].work.rows <= self._max_batch_size):
            queued = waiting.popleft()
            self._queued_rows -= queued.work.rows
            if queued.waiting.cancelled():
                self.refusals.gone += 1
                continue
            if now > queued.deadline:
                self.refusals.deadline += 1
                late.append((queued, _overdue()))
                continue
            taken.append(queued)
            rows += queued.work.rows
        if waiting:
            self._lanes[lane] = waiting
        self._running_rows = rows
        return taken, late

    def _hand_over(self, outcomes: list[_Outcome[Work, Result]], here: asyncio.AbstractEventLoop | None = None) -> None:
        """Hand outcomes to their event loops, with one wake-up for each loop other than the caller's, `here`."""
        for loop in {queued.loop for queued, _ in outcomes}:
            own = [(queued.waiting, outcome) for queued, outcome in outcomes if queued.loop is loop]
            if loop is here:
                _deliver(own)
            else:
                with contextlib.suppress(RuntimeError):  # the loop is closed, so its callers are gone
                    loop.call_soon_threadsafe(_deliver, own)

    def _attempt(self, batch: list[_Queued[Work, Result]]) -> list[_Outcome[Work, Result]]:
        try:
            return list(zip(batch, self._run_timed([queued.work for queued in batch]), strict=True))
        except Exception as error:  # noqa: BLE001 — whatever a model raises belongs to its callers, not to this thread
            together = isinstance(error, UnavailableError | RunTooLongError)  # halves would only fail again
            if len(batch) == 1 or together:
                if len(batch) > 1 and isinstance(error, RunTooLongError):
                    error = _too_long_together(error)
                self.refusals.failed += len(batch)
                return [(queued, error) for queued in batch]
            # One bad input among n costs 2 log2(n) more runs by halves, and n more one by one.
            half = len(batch) // 2
            return self._attempt(batch[:half]) + self._attempt(batch[half:])

    def _run_timed(self, works: list[Work]) -> Sequence[Result]:
        began = time.monotonic()
        ended = False
        try:
            return self._run(works)
        except RunTooLongError:  # says nothing about the next: they would be refused as too late for a full queue
            ended = True
            raise
        finally:
            if not ended:
                taken_s = (time.monotonic() - began) / sum(work.rows for work in works)
                self._row_s += (_SMOOTHING if self._row_s else 1.0) * (taken_s - self._row_s)


def _too_long_together(error: RunTooLongError) -> RunTooLongError:
    """Return the error for each request of a batch: only some of them may be to blame."""
    return RunTooLongError(
        "The model takes too long for a batch that contained these inputs, so its run was ended.",
        found=error.found,
        expected=error.expected,
        remedy="Send them again once, alone. If the model is meant to take that long, raise CANDOR_RUN_TIMEOUT_S.",
    )


def _overdue() -> DeadlineExceededError:
    return DeadlineExceededError(
        "The prediction did not start before its deadline.",
        remedy="Try again, send less at once, or raise CANDOR_DEADLINE_S.",
    )


def _deliver(outcomes: list[tuple[Waiting[Result], Result | Exception]]) -> None:
    for waiting, outcome in outcomes:
        if waiting.done():
            continue
        if isinstance(outcome, Exception):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)
