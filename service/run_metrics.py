"""What the models' queues and runs do, for Prometheus: read off the counts of /v2's statistics when it asks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from service.inference.statistics import Statistics
from service.plane import Plane

_ROWS = tuple(2**power for power in range(11))
_NS = 1e9

Planes = Callable[[], Iterable[tuple[str, Plane]]]


class RunMetrics(Collector):
    """Batch sizes, times of queue and model, refusals; by model, all its revisions together.

    Nothing is counted for them that is not counted anyhow: predictions pay nothing.

    Args:
        read: Gives the models' names and planes.
    """

    def __init__(self, read: Planes) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Give the families."""
        sizes = HistogramMetricFamily("candor_run_rows", "Rows in a run of the model.", labels=("model",))
        runs = SummaryMetricFamily("candor_run_seconds", "Time of a run, calibration included.", labels=("model",))
        waits = SummaryMetricFamily("candor_queue_seconds", "Time that answered requests waited.", labels=("model",))
        refused = CounterMetricFamily(
            "candor_refused_requests", "Requests that got no answer, by reason.", labels=("model", "reason")
        )
        for name, plane in self._read():
            done = list(plane.statistics.values())
            buckets, rows = _sizes(done)
            sizes.add_metric((name,), buckets, rows)
            tallies = [tally for one in done for tally in one.batches.values()]
            count = sum(tally.count for tally in tallies)
            runs.add_metric((name,), count_value=count, sum_value=sum(tally.ns for tally in tallies) / _NS)
            count = sum(one.queue.count for one in done)
            waits.add_metric((name,), count_value=count, sum_value=sum(one.queue.ns for one in done) / _NS)
            for reason, times in asdict(plane.refusals).items():
                refused.add_metric((name, reason), times)
        return sizes, runs, waits, refused


def _sizes(done: Iterable[Statistics]) -> tuple[list[tuple[str, float]], int]:
    """Return cumulative counts of runs by the bounds of their rows, and all rows."""
    counts: Counter[int] = Counter()
    rows = 0
    for one in done:
        for size, tally in one.batches.items():
            counts[bisect_left(_ROWS, size)] += tally.count
            rows += size * tally.count
    totals = accumulate(counts[place] for place in range(len(_ROWS) + 1))
    return list(zip([*(str(float(bound)) for bound in _ROWS), "+Inf"], totals, strict=True)), rows
