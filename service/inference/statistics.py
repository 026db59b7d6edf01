"""Counts and times of revisions since the start, and refusals of queues by reason."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

# Bucket edges of OpenTelemetry's duration histograms in seconds, with smaller steps for small networks.
_OPENTELEMETRY = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, *_OPENTELEMETRY)


class Histogram:
    """A histogram. One thread at a time writes, so it needs no lock.

    Args:
        edges: Upper bounds of the buckets, inclusive and ascending; one more bucket lies above.

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
        """Count a value."""
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value


@dataclass(slots=True)
class Stages:
    """Durations of prediction stages in seconds, over all revisions of a model.

    Attributes:
        decode: Body to array, per request.
        queue: Wait for the batch, per request.
        infer: Network, per batch.
        calibrate: Calibrator, per batch.
        decide: Policy, ids and hand-over to the log, per batch.
        encode: Answer to body, per request.
    """

    decode: Histogram = field(default_factory=Histogram)
    queue: Histogram = field(default_factory=Histogram)
    infer: Histogram = field(default_factory=Histogram)
    calibrate: Histogram = field(default_factory=Histogram)
    decide: Histogram = field(default_factory=Histogram)
    encode: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class Timing:
    """Times of a batch on the clock of `time.perf_counter_ns`, shared by its requests.

    Attributes:
        began_ns: Time at which it left the queue.
        calibrate_ns: Duration of calibration in all its runs.
        inferred_ns: Time at which inference and calibration ended.
        requests: Number of requests.
        rows: Number of rows.
        ended_ns: Time at which it was decided; 0 before that.
    """

    began_ns: int
    calibrate_ns: int
    inferred_ns: int
    requests: int
    rows: int
    ended_ns: int = 0


@dataclass(slots=True)
class Tally:
    """Count and total duration of an event.

    Attributes:
        count: Number of events.
        ns: Total nanoseconds.
    """

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        """Count events that took `ns` nanoseconds in total."""
        self.count += count
        self.ns += ns


@dataclass(slots=True)
class Statistics:
    """Counts of one revision in this process. Only the holder of the queue's turn writes, so it needs no lock.

    Attributes:
        rows: Answered rows.
        runs: Successful inference runs.
        success: Answered requests, from array to answer.
        failure: Refused, late and failed requests, without those given up by their client.
        queue: Answered requests and their time in the queue.
        infer: Answered requests and the time of their runs, calibration included.
        finish: Answered requests and the time of decision and hand-over to the log of their batch.
        batches: Runs and their inference time by number of rows.
        last_at_ms: End of the last run in milliseconds since the epoch; 0 before the first.
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
        """Count an inference run of `rows` rows."""
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
    """Work without a result, by reason.

    Attributes:
        full: The queue was full, the expected wait too long, or the service was stopping.
        deadline: The deadline passed in the queue.
        gone: The caller was gone when its turn came.
        failed: The model raised an error or returned no finite scores.
    """

    full: int = 0
    deadline: int = 0
    gone: int = 0
    failed: int = 0
