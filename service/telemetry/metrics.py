"""Prometheus metrics of one service process."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from service.inference.statistics import SECONDS, Histogram
from service.sums import Snapshot
from service.telemetry.calibration_counts import CalibrationCounts
from service.telemetry.histograms import add_histogram

if TYPE_CHECKING:
    from service.serving.plane import Answer

_REFIT_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)
_HOUR, _DAY = 3600.0, 86_400.0
_DELAY_DAYS = (1, 3, 7, 14, 30, 60, 90, 180)
_DELAY_SECONDS = (1.0, 10.0, 60.0, 600.0, _HOUR, 6 * _HOUR, *(days * _DAY for days in _DELAY_DAYS))

Gauge = tuple[str, str, dict[str, str], float]
"""Name, help, labels, value."""
Gauges = Callable[[], Iterable[Gauge]]
Names = Callable[[], Iterable[str]]


_OTHERS: Final = re.compile(rb"^(# (?:HELP|TYPE) nv_\w+)_total ", re.MULTILINE)

disable_created_metrics()  # type: ignore[no-untyped-call]  # else every counter has a second series


class _Live(Collector):
    """Gauges, and counters (`…_total`), read from the running parts at every scrape."""

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
    """A counter by labels with a single writer thread, so without the library's locks."""

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

    PromQL sees no increase in a series that begins at 1, so the first event would raise no alert.

    Args:
        name: Name without `_total`.
        text: Help text.
        label: Name of the outcome's label.
        outcomes: All outcomes.
    """

    def __init__(self, name: str, text: str, label: str, outcomes: tuple[str, ...]) -> None:
        self.models: Names = tuple
        self._counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._described = name, text, ("model", label)
        self._outcomes = outcomes

    def add(self, model: str, outcome: str, count: int = 1) -> None:
        """Add to a count; call from one thread only."""
        self._counts[model, outcome] += count

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Return the metric family."""
        name, text, labels = self._described
        family = CounterMetricFamily(name, text, labels=labels)
        for model, outcome in product(self.models(), self._outcomes):
            family.add_metric((model, outcome), self._counts.get((model, outcome), 0))
        return [family]


class _Distribution(Collector):
    """A histogram by one label with a single writer thread."""

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
    """All counters and histograms. Every label has few values: models, recent revisions, actions, routes, statuses.

    Attributes:
        calibration: Predictions and labels by revision and bin.
        feedback: Feedback items by outcome.
        recalibrations: Finished recalibrations by outcome.
        gate: Verdicts of the gate.
        uncounted: Labels missing in `calibration`, by reason.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.calibration = CalibrationCounts()
        self.feedback = Outcomes(
            "candor_feedback_items",
            "Feedback items by outcome.",
            "outcome",
            ("stored", "pending", "duplicate", "conflict", "replayed"),
        )
        self.recalibrations = Outcomes(
            "candor_recalibrations",
            "Finished recalibrations by outcome.",
            "outcome",
            ("dry_run", "refused", "proposed", "active", "failed", "cancelled"),
        )
        self.gate = Outcomes(
            "candor_gate_verdicts", "Verdicts of the gate, dry runs included.", "verdict", ("passed", "refused")
        )
        self.uncounted = Outcomes(
            "candor_labels_uncounted",
            "Labels missing in candor_labelled_bin_*, by reason.",
            "reason",
            ("unknown", "full", "other_model"),
        )
        self._requests = _Counts(
            "candor_http_requests", "Requests by route, method and status.", ("route", "method", "status")
        )
        self._request_seconds = _Distribution(
            "candor_http_request_seconds", "Time from a request's head to the end of its response.", "route", SECONDS
        )
        self._calls = _Counts("candor_grpc_requests", "gRPC requests by method and status code.", ("method", "code"))
        self._call_seconds = _Distribution(
            "candor_grpc_request_seconds", "Time from a gRPC request to its response.", "method", SECONDS
        )
        self._seconds = _Distribution(
            "candor_predict_seconds", "Time from the decoded input to the prediction.", "model", SECONDS
        )
        self._refit_seconds = _Distribution(
            "candor_refit_seconds", "Duration of a recalibration, for any outcome.", "model", _REFIT_SECONDS
        )
        self._delays = _Distribution(
            "candor_label_delay_seconds",
            "Time from a prediction to the receipt of its first label.",
            "model",
            _DELAY_SECONDS,
        )
        self._absent = _Counts(
            "candor_absent_values",
            "Missing and unknown values that were accepted in answered rows of a table, by column.",
            ("model", "column", "reason"),
        )
        self._values_refused = _Counts(
            "candor_refused_values",
            "Prediction requests refused because a column of a table refuses a value, by its first such column.",
            ("model", "column", "reason"),
        )
        self._by_model = (self.feedback, self.recalibrations, self.gate, self.uncounted)
        for collector in (
            self._requests,
            self._request_seconds,
            self._calls,
            self._call_seconds,
            self._seconds,
            self._refit_seconds,
            self._delays,
            self._absent,
            self._values_refused,
            self.calibration,
            *self._by_model,
        ):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)

    def watch(self, read: Gauges, models: Names) -> None:
        """Read live values at every scrape.

        Args:
            read: Returns gauges as (name, help, labels, value).
            models: Returns the names of all models.
        """
        for outcomes in self._by_model:
            outcomes.models = models
        self.registry.register(_Live(read))

    def requested(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an HTTP request; call on the event loop."""
        self._requests.by_labels[route, method, str(status)] += 1
        self._request_seconds.observe(route, seconds)

    def called(self, method: str, code: str, seconds: float) -> None:
        """Count a gRPC request; call on the event loop."""
        self._calls.by_labels[method, code] += 1
        self._call_seconds.observe(method, seconds)

    def predicted(self, answer: Answer, seconds: float) -> None:
        """Count an answered predict request and its rows; call on the event loop."""
        self._seconds.observe(answer.served.revision.model, seconds)
        self.calibration.predicted(answer)

    def absent(self, model: str, counts: Mapping[tuple[str, str], int]) -> None:
        """Count accepted values of a table by column and "missing" or "unknown"; call on the event loop."""
        for (column, reason), count in counts.items():
            self._absent.by_labels[model, column, reason] += count

    def value_refused(self, model: str, column: str, reason: str) -> None:
        """Count a request that a column refuses: its value is missing, unknown or invalid; call on the event loop."""
        self._values_refused.by_labels[model, column, reason] += 1

    def refitted(self, model: str, seconds: float) -> None:
        """Record the duration of a recalibration; call on the event loop."""
        self._refit_seconds.observe(model, seconds)

    def labelled_after(self, model: str, seconds: Iterable[float]) -> None:
        """Record the delays of first labels; call on the thread that counts labels."""
        for one in seconds:
            self._delays.observe(model, one)

    def snapshot(self) -> Snapshot:
        """Return all metrics of this process, see `service.sums`; thread-safe."""
        return [
            [family.name, family.type, family.documentation, [_sample(sample) for sample in family.samples]]
            for family in self.registry.collect()
        ]


def _sample(sample: Sample) -> list[Any]:
    return [sample.name, [[key, value] for key, value in sample.labels.items()], sample.value]


class _Read(Collector):
    """The metrics of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        for name, kind, text, samples in self._snapshot:
            family = Metric(name, text, kind)
            for sample, labels, value in samples:
                family.add_sample(sample, dict(labels), value)
            yield family


def exposition(snapshot: Snapshot) -> bytes:
    """Return metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Read(snapshot))
    # The library ends the name of every counter in _total, where Triton's do not.
    return _OTHERS.sub(rb"\1 ", generate_latest(registry))
