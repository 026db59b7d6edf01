"""What a revision has done since the start, in counts and summed times, and what a queue has not done and why."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

# Bucket edges of OpenTelemetry's duration histograms, in seconds; and steps below, since small networks are quicker.
_OPENTELEMETRY = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, *_OPENTELEMETRY)


class Histogram:
    """Counts of values between edges, and their sum. One thread at a time writes, so no lock is needed.

    Args:
        edges: Upper bounds of the buckets, ascending, each one in its bucket; above the last there is one more.

    Attributes:
        counts: Values in each bucket.
        total: Their sum.

    Example:
        >>> seconds = Histogram((0.1, 1.0))
        >>> for value in (0.1, 0.5, 3.0):
        ...     seconds.add(value)
        >>> seconds.counts, seconds.total
        ([1, 1, 1], 3.6)
    """

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: tuple[float, ...] = SECONDS) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value


@dataclass(slots=True)
class Stages:
    """How long the stages of predictions took, in seconds; of one model, all its revisions together.

    Attributes:
        decode: From a body to an array; once for each request.
        queue: Until the request's batch began; once for each request.
        infer: The network; once for each batch.
        calibrate: The calibrator; once for each batch.
        decide: The policy, ids, and handing over to the log; once for each batch.
        encode: From the answer to a body; once for each request.
    """

    decode: Histogram = field(default_factory=Histogram)
    queue: Histogram = field(default_factory=Histogram)
    infer: Histogram = field(default_factory=Histogram)
    calibrate: Histogram = field(default_factory=Histogram)
    decide: Histogram = field(default_factory=Histogram)
    encode: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class Timing:
    """When a batch passed its stages, on the clock of `time.perf_counter_ns`; all its requests share this.

    Attributes:
        began_ns: When it was taken from the queue.
        calibrate_ns: How long calibration took in all its runs.
        inferred_ns: When it was inferred and calibrated.
        requests: Requests in it.
        rows: Their rows.
        ended_ns: When it was decided; 0 before that.
    """

    began_ns: int
    calibrate_ns: int
    inferred_ns: int
    requests: int
    rows: int
    ended_ns: int = 0


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
