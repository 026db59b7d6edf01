"""From a histogram of ours to one of Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily

from service.inference.statistics import Histogram


def add_histogram(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    """Add a histogram to its family, under these labels' values; whoever writes it goes on meanwhile."""
    bounds = [*(str(float(edge)) for edge in histogram.edges), "+Inf"]
    total = histogram.total
    family.add_metric(labels, list(zip(bounds, accumulate(histogram.counts.copy()), strict=True)), total)
