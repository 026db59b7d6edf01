"""The queue against a plain model of it: who runs with whom, who is refused, and what everybody gets, step by step."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from service.errors import DeadlineExceededError, OverloadedError
from service.inference.batcher import Batcher
from tests.waiting import PATIENCE_S

LANES = 3
FOREVER_S = 1e6


@dataclass(eq=False)
class Piece:
    """Some work, and what should become of it."""

    number: int
    rows: int
    lane: object
    poisoned: bool
    late: bool
    fate: str = "pending"
    task: asyncio.Task[int] = field(init=False)


class Stepped:
    """A model that runs one batch each time it is told to."""

    def __init__(self) -> None:
        self.batch: list[Piece] | None = None
        self.ran: list[int] = []
        self._go = threading.Semaphore(0)

    def __call__(self, batch: list[Piece]) -> list[int]:
        self.batch = batch
        self._go.acquire()
        if any(piece.poisoned for piece in batch):
            raise ValueError("poison")
        self.ran += [piece.number for piece in batch]
        return [piece.number for piece in batch]

    def step(self) -> None:
        self.batch = None
        self._go.release()


class Machine(RuleBasedStateMachine):
    """Submits, cancels, swaps lanes, lets the model run and closes, in any order."""

    @initialize(most=st.integers(1, 6), limit=st.integers(1, 16))
    def open(self, most: int, limit: int) -> None:
        self.most, self.limit = most, limit
        self.loop = asyncio.new_event_loop()
        self.model = Stepped()
        self.batcher: Batcher[Any, int] = Batcher(self.model, max_batch_size=most, max_queued_rows=limit)
        self.lanes: list[object] = [object() for _ in range(LANES)]
        self.pieces: list[Piece] = []
        self.waiting: dict[object, list[Piece]] = {}
        self.taken: list[Piece] = []  # the batch that the worker has
        self.runs: list[list[Piece]] = []  # what it will run of it, parts of failed ones included
        self.closer: threading.Thread | None = None

    @rule(lane=st.integers(0, LANES - 1), rows=st.integers(1, 4), poisoned=st.booleans(), late=st.booleans())
    def submit(self, lane: int, rows: int, poisoned: bool, late: bool) -> None:
        piece = Piece(len(self.pieces), rows, self.lanes[lane], poisoned and rows < 3, late and rows > 2)
        self.pieces.append(piece)
        waiting = sum(other.rows for lane in self.waiting.values() for other in lane)
        full = self.closer is not None or (waiting and waiting + rows > self.limit)
        deadline_s = -1.0 if piece.late else FOREVER_S
        piece.task = self.loop.create_task(self.batcher.submit(piece, deadline_s=deadline_s))
        self.pump()
        # Behind others an overdue one is refused at the door, where there are none it is dropped at its turn.
        if full or (piece.late and waiting):
            piece.fate = "refused"
        else:
            self.waiting.setdefault(piece.lane, []).append(piece)
        self.settle()

    @precondition(lambda self: any(piece.fate == "pending" for piece in self.pieces))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        piece = data.draw(st.sampled_from([piece for piece in self.pieces if piece.fate == "pending"]))
        piece.task.cancel()
        piece.fate = "cancelled"
        self.pump()

    @rule(lane=st.integers(0, LANES - 1))
    def swap(self, lane: int) -> None:
        self.lanes[lane] = object()

    @precondition(lambda self: self.taken)
    @rule()
    def run(self) -> None:
        batch = self.runs.pop(0)
        if any(piece.poisoned for piece in batch) and len(batch) > 1:
            half = len(batch) // 2
            self.runs[:0] = [batch[:half], batch[half:]]
        if not self.runs:
            for piece in self.taken:
                if piece.fate == "pending":
                    piece.fate = "poisoned" if piece.poisoned else "answered"
            self.taken = []
        self.model.step()
        self.settle()

    @precondition(lambda self: self.closer is None)
    @rule()
    def close(self) -> None:
        self.closer = threading.Thread(target=self.batcher.close)
        self.closer.start()
        while not self.batcher._closing:
            time.sleep(0)

    def settle(self) -> None:
        """Let the worker go as far as it can, and see that it has what it should have."""
        while not self.taken and self.waiting:
            lane = next(iter(self.waiting))
            queue = self.waiting.pop(lane)
            rows = 0
            while queue and (not self.taken or rows + queue[0].rows <= self.most):
                piece = queue.pop(0)
                if piece.fate == "cancelled":
                    continue
                if piece.late:
                    piece.fate = "late"
                    continue
                self.taken.append(piece)
                rows += piece.rows
            if queue:
                self.waiting[lane] = queue
        if self.taken and not self.runs:
            self.runs = [self.taken]
        for _ in self.patience():
            asleep = self.batcher._wakes_at_rows or not self.batcher._thread.is_alive()
            if self.model.batch is not None if self.taken else asleep:
                break
        if self.taken:
            assert self.model.batch == self.runs[0]
        self.pump()
        waiting = sum(piece.rows for lane in self.waiting.values() for piece in lane)
        assert self.batcher.queued_rows == waiting

    def pump(self) -> None:
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))

    def patience(self) -> Iterator[None]:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            yield
            time.sleep(0)
        raise AssertionError("the worker does nothing")

    async def outcomes(self) -> list[int | BaseException]:
        return await asyncio.gather(*(piece.task for piece in self.pieces), return_exceptions=True)

    def teardown(self) -> None:
        if not hasattr(self, "batcher"):
            return
        if self.closer is None:
            self.close()
        while self.taken:
            self.run()
        assert self.closer is not None
        self.closer.join(PATIENCE_S)
        assert not self.closer.is_alive()
        outcomes = self.loop.run_until_complete(self.outcomes())
        self.loop.close()
        kinds = {
            OverloadedError: "refused",
            DeadlineExceededError: "late",
            ValueError: "poisoned",
            asyncio.CancelledError: "cancelled",
            int: "answered",
        }
        for piece, outcome in zip(self.pieces, outcomes, strict=True):
            assert kinds[type(outcome)] == piece.fate
            if piece.fate == "answered":
                assert outcome == piece.number
                assert self.model.ran.count(piece.number) == 1
            if piece.fate in ("refused", "late", "poisoned"):
                assert piece.number not in self.model.ran


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
