"""The prediction log: a queue that one thread writes in grouped commits."""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

from service.errors import CandorError, OverloadedError, StateUnavailableError
from service.state.database import Database
from service.state.prediction_rows import After, KeepInputs, PredictionBatch, RowWriter

ROWS_PER_COMMIT = 10_000
CAPACITY_BYTES = 256 << 20
RETRY_S = 0.2
_logger = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    batch: PredictionBatch
    written: Future[None] | None  # its owner may cancel it to withdraw the rows

    @property
    def withdrawn(self) -> bool:
        return self.written is not None and self.written.cancelled()


class PredictionLog:
    """Queues batches without blocking and writes them in grouped commits.

    While the database does not answer, batches wait; batches beyond the capacity are dropped and counted, and so is a
    batch whose content the database refuses. `promise` returns a future that is done when the rows are durable.

    Args:
        database: The state.
        capacity: Maximum waiting rows.
        commit_interval_s: Longest wait of a row for others to share its commit.
        capacity_bytes: Maximum size of the waiting inputs and logits.
        sample: Share of the groups (and of inputs without a group) to write. All rows of a group are in the sample or
            none, so frequencies stay the same.
        keep_inputs: Rows whose inputs are stored: none, those whose label is sought, or all.

    Attributes:
        written: Rows that are durable.
        dropped: Rows that were dropped.
        left_out: Rows outside the sample.
    """

    def __init__(
        self,
        database: Database,
        capacity: int = 100_000,
        commit_interval_s: float = 0.05,
        *,
        capacity_bytes: int = CAPACITY_BYTES,
        sample: float = 1.0,
        keep_inputs: KeepInputs = "off",
    ) -> None:
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._interval = commit_interval_s
        self._writer = RowWriter(database, sample=sample, keep_inputs=keep_inputs)
        self._waiting: deque[_Waiting] = deque()
        self._accepted = 0
        self._settled = 0
        self._bytes = 0
        self._flushing = 0
        self._closing = False
        self._abandoned = False
        self._changed = threading.Condition()
        self.written = 0
        self.dropped = 0
        self.left_out = 0
        self._thread = threading.Thread(target=self._run, name="prediction-log", daemon=True)
        self._thread.start()

    def then(self, after: After) -> None:
        """Call `after` with each durable batch, on the thread that writes; it must neither block nor raise."""
        self._writer.after = after

    @property
    def depth(self) -> int:
        """Number of waiting rows."""
        return self._accepted - self._settled

    def append(self, batch: PredictionBatch) -> bool:
        """Queue a batch without blocking; return False if it was dropped because the queue is full or closed."""
        return self._queue(_Waiting(batch, None))

    def promise(self, batch: PredictionBatch) -> Future[None]:
        """Queue a batch without blocking and return a future that is done when its rows are durable.

        Cancelling it withdraws the rows, unless they are being written. It raises OverloadedError if the queue is full,
        StateUnavailableError if the log closes before the rows are written, and another CandorError if the state
        refuses them.
        """
        written: Future[None] = Future()
        if not self._queue(_Waiting(batch, written)):
            written.set_exception(
                _stopped()
                if self._closing
                else OverloadedError(
                    "Too many predictions wait for the log.",
                    found=f"{self.depth} waiting",
                    expected=f"at most {self._capacity}",
                    remedy="Try again later. If the error persists, check the state database.",
                )
            )
        return written

    def _queue(self, waiting: _Waiting) -> bool:
        rows, size = len(waiting.batch), waiting.batch.nbytes
        with self._changed:
            full = self.depth + rows > self._capacity or self._bytes + size > self._capacity_bytes
            if full or self._closing:
                self.dropped += rows
                return False
            idle = not self._waiting
            self._waiting.append(waiting)
            self._accepted += rows
            self._bytes += size
            if idle or self.depth >= ROWS_PER_COMMIT:
                self._changed.notify_all()
        return True

    def flush(self, timeout: float = 60.0) -> bool:
        """Wait until all queued rows are written or dropped; return False after `timeout` seconds."""
        with self._changed:
            goal = self._accepted
            self._flushing += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: self._settled >= goal, timeout)
            finally:
                self._flushing -= 1

    def close(self, timeout: float = 10.0) -> None:
        """Refuse new batches, write waiting ones, and stop.

        Args:
            timeout: Seconds after which the remaining rows are dropped and counted.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        left: list[_Waiting] = []
        with self._changed:
            if self._thread.is_alive():
                self._abandoned = True
                self.dropped += self.depth
                self._settled = self._accepted
                left, self._waiting = [*self._waiting], deque()
                self._changed.notify_all()
        _tell(left, _stopped())

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting or self._abandoned:
                    return
                self._changed.wait_for(self._due, self._interval)
                group = self._take()
            self._write(group)

    def _due(self) -> bool:
        return self._closing or self._flushing > 0 or self.depth >= ROWS_PER_COMMIT

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        rows = 0
        while self._waiting and rows < ROWS_PER_COMMIT:
            group.append(self._waiting.popleft())
            rows += len(group[-1].batch)
        return group

    def _write(self, group: list[_Waiting]) -> None:
        reported = False
        while not self._abandoned:
            wanted = [waiting for waiting in group if not waiting.withdrawn]
            try:
                written = self._writer.write([waiting.batch for waiting in wanted])
            except StateUnavailableError as error:
                if not reported:
                    _logger.warning("predictions wait to be logged: %s", error)
                    reported = True
                with self._changed:
                    self._changed.wait_for(lambda: self._abandoned, RETRY_S)
            except Exception:
                if len(group) == 1:
                    _logger.exception("%d predictions cannot be logged", len(group[0].batch))
                    self._settle(group, dropped=len(group[0].batch))
                    _tell(group, CandorError("The prediction could not be logged, so it is not returned."))
                else:
                    for waiting in group:
                        self._write([waiting])
                return
            else:
                rows = sum(len(waiting.batch) for waiting in wanted)
                self._settle(group, written=written, left_out=rows - written)
                _tell(wanted, None)
                return
        _tell(group, _stopped())

    def _settle(self, group: list[_Waiting], *, written: int = 0, dropped: int = 0, left_out: int = 0) -> None:
        with self._changed:
            if self._abandoned:
                return
            self.written += written
            self.dropped += dropped
            self.left_out += left_out
            self._settled += sum(len(waiting.batch) for waiting in group)
            self._bytes -= sum(waiting.batch.nbytes for waiting in group)
            self._changed.notify_all()


def _stopped() -> StateUnavailableError:
    return StateUnavailableError("The service stopped before the prediction was logged.")


def _tell(group: list[_Waiting], error: CandorError | None) -> None:
    """Complete the futures of rows: durable, or failed with an error."""
    for written in (waiting.written for waiting in group):
        # False: the future was cancelled while its rows were being written.
        if written is not None and written.set_running_or_notify_cancel():
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)
