"""Prometheus counters of one service process."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from service.plane import Answer

# Bucket edges of OpenTelemetry's HTTP duration histograms, in seconds.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_CONFIDENCE = tuple(edge / 10 for edge in range(1, 11))

Gauges = Callable[[], Iterable[tuple[str, str, dict[str, str], float]]]


disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter that nobody asks for


class _Live(Collector):
    """Gauges, and counters by a name in `_total`, that are read off the running parts when they are asked for."""

    def __init__(self, read: Gauges) -> None:
        self._read = read

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, text, labels, value in self._read():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = families.setdefault(name, kind(name, text, labels=tuple(labels)))
            family.add_metric(tuple(labels.values()), value)
        return families.values()


class _Counts(Collector):
    """A counter by labels that only the event loop writes: a dictionary, where the library's would take locks."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self.by_labels: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self._described = name, text, labels

    def collect(self) -> Iterable[CounterMetricFamily]:
        name, text, labels = self._described
        family = CounterMetricFamily(name, text, labels=labels)
        for values, count in self.by_labels.items():
            family.add_metric(values, count)
        return [family]


class _Distribution(Collector):
    """A histogram by labels that only the event loop writes."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], edges: tuple[float, ...]) -> None:
        self._described = name, text, labels
        self._edges = edges
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, labels: tuple[str, ...], values: Iterable[float]) -> None:
        """Count values under these labels."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._edges) + 1)
            self._sums[labels] = 0.0
        for value in values:
            counts[bisect_left(self._edges, value)] += 1
            self._sums[labels] += value

    def collect(self) -> Iterable[HistogramMetricFamily]:
        name, text, labels = self._described
        family = HistogramMetricFamily(name, text, labels=labels)
        names = [*(str(float(edge)) for edge in self._edges), "+Inf"]
        for values, counts in self._counts.items():
            buckets = list(zip(names, accumulate(counts), strict=True))
            family.add_metric(values, buckets, self._sums[values])
        return [family]


class Metrics:
    """What is counted. Every label has few values: models, revisions, actions, routes, statuses."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._requests = _Counts(
            "candor_http_requests", "Requests by route, method and status.", ("route", "method", "status")
        )
        self._predictions = _Counts(
            "candor_predictions",
            "Predicted rows by model, revision, policy and action.",
            ("model", "revision", "policy", "action"),
        )
        self._confidence = _Distribution(
            "candor_confidence", "Calibrated confidence of predicted rows.", ("model", "revision"), _CONFIDENCE
        )
        self._seconds = _Distribution(
            "candor_predict_seconds", "Time from the decoded input to the answer.", ("model",), _SECONDS
        )
        for collector in (self._requests, self._predictions, self._confidence, self._seconds):
            self.registry.register(collector)
        self.feedback = Counter(
            "candor_feedback_items",
            "Feedback items by model and outcome.",
            ("model", "outcome"),
            registry=self.registry,
        )
        self.recalibrations = Counter(
            "candor_recalibrations",
            "Finished refits by model and outcome.",
            ("model", "outcome"),
            registry=self.registry,
        )

    def watch(self, read: Gauges) -> None:
        """Report what `read` returns, (name, help, labels, value) each, whenever metrics are asked for."""
        self.registry.register(_Live(read))

    def requested(self, route: str, method: str, status: int) -> None:
        """Count one HTTP request; on the event loop."""
        self._requests.by_labels[route, method, str(status)] += 1

    def predicted(self, answer: Answer, seconds: float) -> None:
        """Count one answered predict request and its rows; on the event loop."""
        revision = answer.served.revision
        policy = "" if answer.policy is None else answer.policy.policy.id
        self._seconds.observe((revision.model,), (seconds,))
        self._confidence.observe((revision.model, revision.id), answer.confidence.tolist())
        for action in answer.actions:
            self._predictions.by_labels[revision.model, revision.id, policy, action or ""] += 1

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
