"""What a revision has done since the start, in counts and summed times, and what a queue has not done and why."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """How often something happened, and how long it took in all.

    Attributes:
        count: Times.
        ns: Nanoseconds, summed.
    """

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        """Count something that took `ns` nanoseconds."""
        self.count += count
        self.ns += ns


@dataclass(slots=True)
class Statistics:
    """Counts of one revision in this process; only whoever has the queue's turn writes, so no lock is needed.

    Attributes:
        rows: Rows that were answered.
        runs: Inference runs that succeeded.
        success: Requests that were answered, from the array to the answer.
        failure: Requests that were refused, came too late or failed; those that their client gave up count nowhere.
        queue: Answered requests, and how long they waited.
        infer: Answered requests, and how long the runs took that they were part of, calibration included.
        finish: Answered requests, and how long decision and hand-over to the log took for their batch.
        batches: Runs and their inference time, by rows in the run.
        last_at_ms: When the last run ended, milliseconds since the epoch; 0 before the first.
    """

    rows: int = 0
    runs: int = 0
    success: Tally = field(default_factory=Tally)
    failure: Tally = field(default_factory=Tally)
    queue: Tally = field(default_factory=Tally)
    infer: Tally = field(default_factory=Tally)
    finish: Tally = field(default_factory=Tally)
    batches: dict[int, Tally] = field(default_factory=dict)
    last_at_ms: int = 0

    def ran(self, rows: int, ns: int) -> None:
        """Count one inference run of `rows` rows."""
        self.runs += 1
        self.rows += rows
        tally = self.batches.get(rows)
        if tally is None:
            # Readers on other threads go through the dictionary, so it is replaced instead of grown.
            self.batches = {**self.batches, rows: Tally(1, ns)}
        else:
            tally.add(ns)


@dataclass(slots=True)
class Refusals:
    """Work that a queue took or should have taken, and that got no answer.

    Attributes:
        full: Found no room, or would have waited too long, or came when the service was stopping.
        deadline: Its turn did not come in time.
        gone: Its caller had gone when its turn came.
        failed: The model raised something, or had no finite scores for it.
    """

    full: int = 0
    deadline: int = 0
    gone: int = 0
    failed: int = 0
