"""Prometheus counters of one service process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
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


class Metrics:
    """What is counted. Every label has few values: models, revisions, actions, routes, statuses."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._requests = Counter(
            "candor_http_requests",
            "Requests by route, method and status.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self._predictions = Counter(
            "candor_predictions",
            "Predicted rows by model, revision, policy and action.",
            ("model", "revision", "policy", "action"),
            registry=self.registry,
        )
        self._confidence = Histogram(
            "candor_confidence",
            "Calibrated confidence of predicted rows.",
            ("model", "revision"),
            buckets=_CONFIDENCE,
            registry=self.registry,
        )
        self._seconds = Histogram(
            "candor_predict_seconds",
            "Time from the decoded input to the answer.",
            ("model",),
            buckets=_SECONDS,
            registry=self.registry,
        )
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
        """Count one HTTP request."""
        self._requests.labels(route, method, str(status)).inc()

    def predicted(self, answer: Answer, seconds: float) -> None:
        """Count one answered predict request and its rows."""
        revision = answer.served.revision
        policy = "" if answer.policy is None else answer.policy.policy.id
        self._seconds.labels(revision.model).observe(seconds)
        confidence = self._confidence.labels(revision.model, revision.id)
        for action, value in zip(answer.actions, answer.confidence.tolist(), strict=True):
            self._predictions.labels(revision.model, revision.id, policy, action or "").inc()
            confidence.observe(value)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
