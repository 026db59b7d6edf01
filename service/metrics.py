"""Prometheus metrics of one service process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from service.calibration_counts import CalibrationCounts
from service.histogram_metrics import add_histogram
from service.inference.statistics import SECONDS, Histogram

if TYPE_CHECKING:
    from service.plane import Answer

_REFIT_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)
_HOUR, _DAY = 3600.0, 86_400.0
_DELAY_DAYS = (1, 3, 7, 14, 30, 60, 90, 180)
_DELAY_SECONDS = (1.0, 10.0, 60.0, 600.0, _HOUR, 6 * _HOUR, *(days * _DAY for days in _DELAY_DAYS))

Gauge = tuple[str, str, dict[str, str], float]
"""Name, help, labels, value."""
Gauges = Callable[[], Iterable[Gauge]]
Names = Callable[[], Iterable[str]]


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
    """A counter by labels that only one thread writes: a dictionary, where the library's would take locks."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self.by_labels: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self._described = name, text, labels

    def collect(self) -> Iterable[CounterMetricFamily]:
        name, text, labels = self._described
        family = CounterMetricFamily(name, text, labels=labels)
        for values, count in list(self.by_labels.items()):
            family.add_metric(values, count)
        return [family]


class Outcomes(Collector):
    """A counter by model and outcome that shows every outcome from the start.

    A series that is first seen at 1 has not risen, for PromQL: its first event would raise no alert.

    Args:
        name: Without `_total`.
        text: What it counts.
        label: Name of the outcome's label.
        outcomes: All there are.
    """

    def __init__(self, name: str, text: str, label: str, outcomes: tuple[str, ...]) -> None:
        self.models: Names = tuple
        self._counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._described = name, text, ("model", label)
        self._outcomes = outcomes

    def add(self, model: str, outcome: str, count: int = 1) -> None:
        """Count something; always on the same thread."""
        self._counts[model, outcome] += count

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Give the family."""
        name, text, labels = self._described
        family = CounterMetricFamily(name, text, labels=labels)
        for model, outcome in product(self.models(), self._outcomes):
            family.add_metric((model, outcome), self._counts.get((model, outcome), 0))
        return [family]


class _Distribution(Collector):
    """A histogram by one label that only one thread writes."""

    def __init__(self, name: str, text: str, label: str, edges: tuple[float, ...]) -> None:
        self._described = name, text, (label,)
        self._edges = edges
        self._histograms: dict[str, Histogram] = {}

    def observe(self, label: str, value: float) -> None:
        histogram = self._histograms.get(label)
        if histogram is None:
            histogram = self._histograms[label] = Histogram(self._edges)
        histogram.add(value)

    def collect(self) -> Iterable[HistogramMetricFamily]:
        name, text, labels = self._described
        family = HistogramMetricFamily(name, text, labels=labels)
        for label, histogram in list(self._histograms.items()):
            add_histogram(family, (label,), histogram)
        return [family]


class Metrics:
    """What is counted. Every label has few values: models, their latest revisions, actions, routes, statuses.

    Attributes:
        calibration: Predictions and labels by revision and bin.
        feedback: Feedback items by outcome.
        recalibrations: Finished refits by outcome.
        gate: Verdicts of the gate.
        uncounted: Labels that are missing in `calibration`, by reason.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.calibration = CalibrationCounts()
        self.feedback = Outcomes(
            "candor_feedback_items",
            "Feedback items by what became of them.",
            "outcome",
            ("stored", "pending", "duplicate", "conflict", "replayed"),
        )
        self.recalibrations = Outcomes(
            "candor_recalibrations",
            "Finished refits by outcome.",
            "outcome",
            ("dry_run", "refused", "proposed", "active", "failed", "cancelled"),
        )
        self.gate = Outcomes(
            "candor_gate_verdicts", "Verdicts of the gate, dry runs included.", "verdict", ("passed", "refused")
        )
        self.uncounted = Outcomes(
            "candor_labels_uncounted",
            "Labels that are not in candor_labelled_bin_*, by reason.",
            "reason",
            ("unknown", "full", "other_model"),
        )
        self._requests = _Counts(
            "candor_http_requests", "Requests by route, method and status.", ("route", "method", "status")
        )
        self._request_seconds = _Distribution(
            "candor_http_request_seconds", "Time from a request's head to the end of its answer.", "route", SECONDS
        )
        self._seconds = _Distribution(
            "candor_predict_seconds", "Time from the decoded input to the answer.", "model", SECONDS
        )
        self._refit_seconds = _Distribution(
            "candor_refit_seconds", "Time of a refit, however it ended.", "model", _REFIT_SECONDS
        )
        self._delays = _Distribution(
            "candor_label_delay_seconds",
            "Time from a prediction to the receipt of its first label.",
            "model",
            _DELAY_SECONDS,
        )
        self._by_model = (self.feedback, self.recalibrations, self.gate, self.uncounted)
        for collector in (
            self._requests,
            self._request_seconds,
            self._seconds,
            self._refit_seconds,
            self._delays,
            self.calibration,
            *self._by_model,
        ):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)

    def watch(self, read: Gauges, models: Names) -> None:
        """Report what the running parts say whenever metrics are asked for.

        Args:
            read: Gives (name, help, labels, value) each.
            models: Gives the names of all models.
        """
        for outcomes in self._by_model:
            outcomes.models = models
        self.registry.register(_Live(read))

    def requested(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one HTTP request; on the event loop."""
        self._requests.by_labels[route, method, str(status)] += 1
        self._request_seconds.observe(route, seconds)

    def predicted(self, answer: Answer, seconds: float) -> None:
        """Count one answered predict request and its rows; on the event loop."""
        self._seconds.observe(answer.served.revision.model, seconds)
        self.calibration.predicted(answer)

    def refitted(self, model: str, seconds: float) -> None:
        """Count how long a refit took; on the event loop."""
        self._refit_seconds.observe(model, seconds)

    def labelled_after(self, model: str, seconds: Iterable[float]) -> None:
        """Count how long first labels took; on the thread that counts labels."""
        for one in seconds:
            self._delays.observe(model, one)

    def rows_by_action(self, model: str) -> dict[tuple[str, str], int]:
        """Return how many rows each policy and action got, of the revisions shown; "" stands for no policy."""
        return self.calibration.rows_by_action(model)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format; on any thread."""
        return generate_latest(self.registry)
