"""Metrics of queues and inference runs, read from the planes at every scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from service.inference.statistics import Stages, Statistics
from service.serving.labels import LabelsPlane
from service.serving.plane import Plane
from service.telemetry.histograms import add_histogram

_ROWS = tuple(2**power for power in range(11))

Planes = Callable[[], Iterable[tuple[str, Plane | LabelsPlane]]]


class RunMetrics(Collector):
    """Batch sizes, stage times and refusals by model, over all its revisions.

    Args:
        read: Returns the names and planes of models, multi-label models among them.
    """

    def __init__(self, read: Planes) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Return the metric families."""
        sizes = HistogramMetricFamily("candor_run_rows", "Rows in a run of the model.", labels=("model",))
        stages = HistogramMetricFamily(
            "candor_stage_seconds",
            "Time of a stage: decode, queue and encode per request; infer, calibrate and decide per batch.",
            labels=("model", "stage"),
        )
        refused = CounterMetricFamily(
            "candor_refused_requests", "Refused predict requests by reason.", labels=("model", "reason")
        )
        for name, plane in self._read():
            buckets, rows = _sizes(list(plane.statistics.values()))
            sizes.add_metric((name,), buckets, rows)
            for stage in fields(Stages):
                add_histogram(stages, (name, stage.name), getattr(plane.stages, stage.name))
            for reason, times in asdict(plane.refusals).items():
                refused.add_metric((name, reason), times)
        return sizes, stages, refused


def _sizes(done: Iterable[Statistics]) -> tuple[list[tuple[str, float]], int]:
    """Return cumulative counts of runs by batch size, and the total rows."""
    counts: Counter[int] = Counter()
    rows = 0
    for one in done:
        for size, tally in one.batches.items():
            counts[bisect_left(_ROWS, size)] += tally.count
            rows += size * tally.count
    totals = accumulate(counts[place] for place in range(len(_ROWS) + 1))
    return list(zip([*(str(float(bound)) for bound in _ROWS), "+Inf"], totals, strict=True)), rows
