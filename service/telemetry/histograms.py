"""Convert the service's histograms to those of Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily

from service.inference.statistics import Histogram


def add_histogram(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    """Add a histogram to a family under these label values; its writer may continue meanwhile."""
    bounds = [*(str(float(edge)) for edge in histogram.edges), "+Inf"]
    total = histogram.total
    family.add_metric(labels, list(zip(bounds, accumulate(histogram.counts.copy()), strict=True)), total)
