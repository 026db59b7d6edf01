"""A bounded queue in front of one worker thread that takes everything that waits.

Work-conserving: a free worker never waits for more unless a delay is configured. A full queue refuses at once, and so
does one in which work would wait beyond its deadline. Work that is overdue, or whose caller has gone, is dropped when
its turn comes, before it costs anything. A batch that fails is halved until the poisoned inputs fail alone.
Work that is alone and quickly done runs on its caller's thread: to wake another and be woken by it costs more.

Queues on one event loop share their arrivals: what their workers would do side by side must not run there in turn.

Work of different lanes shares the worker but no batch; lanes take turns, so that a crowded one holds up no other.
Models have a worker each: docs/decisions/0004-one-worker-for-each-model.md.
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

from service.errors import DeadlineExceededError, OverloadedError
from service.inference.statistics import Refusals

_SMOOTHING = 0.1  # share of the newest batch in what a row is expected to take
_MARGIN = 0.8  # of its deadline, that work may be expected to wait: expectations err
_FOREVER = -1.0  # as a lock's timeout


class Batchable(Protocol):
    """What the queue needs to know of a piece of work."""

    @property
    def rows(self) -> int:
        """Rows that it adds to a batch, at least 1."""

    @property
    def lane(self) -> Hashable:
        """Only work of the same lane shares a batch."""


Work = TypeVar("Work", bound=Batchable)
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Queued(Generic[Work, Result]):
    work: Work
    queued_at: float
    deadline: float
    future: asyncio.Future[Result]
    loop: asyncio.AbstractEventLoop


class Arrivals:
    """Callers on one event loop that find out whether they are alone, of all the queues that share this.

    Attributes:
        now: How many they are.
        ever: How many there have been.
        lock: Held by whoever changes them.
    """

    def __init__(self) -> None:
        self.now = 0
        self.ever = 0
        self.lock = threading.Lock()


_Outcome = tuple[_Queued[Work, Result], Result | Exception]


class Batcher(Generic[Work, Result]):
    """Gathers work into batches and hands each caller its own result, exactly once.

    Args:
        run: Takes a non-empty list of work of one lane and returns one result for each, in order. Never called by two
            threads at once; when it raises, it is called again with parts of the list.
        max_batch_size: Rows in a batch; larger single pieces of work run alone.
        max_queued_rows: Rows that may wait.
        delay_s: How long the oldest work waits for a batch to fill; 0 takes what is there.
        name: Name of the worker thread.
        arrivals: Shared with the other queues of the event loop; None where there is no other.

    Attributes:
        refusals: Work that got no answer, by reason.
    """

    def __init__(
        self,
        run: Callable[[list[Work]], Sequence[Result]],
        *,
        max_batch_size: int,
        max_queued_rows: int,
        delay_s: float = 0.0,
        name: str = "batcher",
        arrivals: Arrivals | None = None,
    ) -> None:
        self.refusals = Refusals()
        self._run = run
        self._max_batch_size = max_batch_size
        self._max_queued_rows = max_queued_rows
        self._delay_s = delay_s
        # In the order of their turns; a lane is there as long as something waits in it.
        self._lanes: dict[Hashable, deque[_Queued[Work, Result]]] = {}
        self._queued_rows = 0
        self._running_rows = 0
        self._row_s = 0.0
        self._arrivals = arrivals or Arrivals()
        self._turn = threading.Lock()  # held by whoever runs
        self._closing = False
        # Two bare locks instead of a condition, which makes a lock for each wait: this is on every request's way.
        self._lock = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._wakes_at_rows = 0  # the worker sleeps until so many rows wait; 0 while it is awake
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def queued_rows(self) -> int:
        """Rows that wait now."""
        return self._queued_rows

    def check_room(self) -> None:
        """Refuse what would find no room anyhow, before anything is done for it.

        Raises:
            OverloadedError: The queue is full, or the service is stopping.
        """
        if self._closing or self._queued_rows >= self._max_queued_rows:
            with self._lock:
                self.refusals.full += 1
            raise self._refusal()

    async def submit(self, work: Work, *, deadline_s: float, here_s: float = 0.0) -> Result:
        """Queue `work` and wait for its result. Cancelling the caller drops the work if it has not begun.

        Args:
            work: What to run.
            deadline_s: Seconds within which its turn must come.
            here_s: Work that finds nobody else and is expected to take no longer runs at once on this thread, and
                holds up the event loop meanwhile; 0, or a delay, always queues it.

        Raises:
            OverloadedError: The queue is full, its turn would come too late, or the service is stopping.
            DeadlineExceededError: Its turn did not come within `deadline_s` seconds.
        """
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        # Not _Queued[Work, Result](…): subscripting costs more than making it.
        queued: _Queued[Work, Result] = _Queued(work, now, now + deadline_s, loop.create_future(), loop)
        rows = work.rows
        if self._row_s and rows * self._row_s <= min(here_s, deadline_s) and await self._is_alone():
            try:
                [(_, outcome)] = self._attempt([queued])
            finally:
                self._turn.release()
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        with self._lock:
            # An empty queue takes any single piece of work, however large: its size was limited at the door.
            if self._closing or (self._queued_rows and self._is_crowded(rows, deadline_s)):
                self.refusals.full += 1
                raise self._refusal()
            self._lanes.setdefault(work.lane, deque()).append(queued)
            self._queued_rows += rows
            if self._wakes_at_rows and self._queued_rows >= self._wakes_at_rows:
                self._wake_up()
        return await queued.future

    async def _is_alone(self) -> bool:
        """Whether nothing else waits, runs or comes at the same time; then the turn is the caller's, to be released."""
        if self._queued_rows or self._delay_s or self._turn.locked():
            return False
        arrivals = self._arrivals
        with arrivals.lock:
            first = not arrivals.now
            arrivals.now += 1
            arrivals.ever = mine = arrivals.ever + 1
        try:
            await asyncio.sleep(0)  # requests that came together are all read before any of them runs
            alone = first and arrivals.ever == mine and not self._queued_rows
        finally:
            with arrivals.lock:
                arrivals.now -= 1
        if alone and self._turn.acquire(blocking=False):
            if not self._closing:  # else whoever closes may have waited for the turn already
                return True
            self._turn.release()
        return False

    def close(self) -> None:
        """Refuse new work, finish what waits or runs, and stop the worker."""
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
            return OverloadedError("The service is stopping.", remedy="Ask another replica, or try again later.")
        return OverloadedError(
            "Too many predictions are waiting.",
            found=f"{self._queued_rows} rows waiting",
            expected=f"at most {self._max_queued_rows}, and fewer where they would come too late",
            remedy="Try again after the seconds that Retry-After names.",
        )

    def _wake_up(self) -> None:
        self._wakes_at_rows = 0
        self._wake.release()

    def _sleep(self, timeout_s: float) -> None:
        """Wait, on the worker thread, until somebody wakes it; whoever calls has set `_wakes_at_rows`."""
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
        """Return the next batch of one lane; empty only when closing."""
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
        """Take a batch from the lane whose turn it is, and what is overdue before it; the lane goes to the end."""
        now = time.monotonic()
        taken: list[_Queued[Work, Result]] = []
        late: list[_Outcome[Work, Result]] = []
        rows = 0
        lane = next(iter(self._lanes))
        waiting = self._lanes.pop(lane)
        while waiting and (not taken or rows + waiting[0].work.rows <= self._max_batch_size):
            queued = waiting.popleft()
            self._queued_rows -= queued.work.rows
            if queued.future.cancelled():
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

    def _hand_over(self, outcomes: list[_Outcome[Work, Result]]) -> None:
        """Hand outcomes over to their event loops, one wake-up for each loop."""
        for loop in {queued.loop for queued, _ in outcomes}:
            own = [(queued.future, outcome) for queued, outcome in outcomes if queued.loop is loop]
            with contextlib.suppress(RuntimeError):  # the loop is closed: its callers are gone
                loop.call_soon_threadsafe(_deliver, own)

    def _attempt(self, batch: list[_Queued[Work, Result]]) -> list[_Outcome[Work, Result]]:
        try:
            return list(zip(batch, self._run_timed([queued.work for queued in batch]), strict=True))
        except Exception as error:  # noqa: BLE001 — whatever a model raises belongs to its callers, not to this thread
            if len(batch) == 1:
                self.refusals.failed += 1
                return [(batch[0], error)]
            # One poisoned input among n costs 2 log2(n) more runs by halves, and n one by one.
            half = len(batch) // 2
            return self._attempt(batch[:half]) + self._attempt(batch[half:])

    def _run_timed(self, works: list[Work]) -> Sequence[Result]:
        began = time.monotonic()
        try:
            return self._run(works)
        finally:
            taken_s = (time.monotonic() - began) / sum(work.rows for work in works)
            self._row_s += _SMOOTHING * (taken_s - self._row_s)


def _overdue() -> DeadlineExceededError:
    return DeadlineExceededError(
        "The prediction did not start before its deadline.",
        remedy="Try again, send less at once, or raise CANDOR_DEADLINE_S.",
    )


def _deliver(outcomes: list[tuple[asyncio.Future[Result], Result | Exception]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
