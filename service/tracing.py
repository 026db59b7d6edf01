"""OpenTelemetry traces, where a collector is named: needs the extra `otel`, and costs nothing otherwise.

The hot path knows nothing of them: it notes when a batch passed its stages, and the spans of a prediction are made from
that when its answer is sent. A request's span is current while it is answered, so that what it starts can refer to it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import structlog

from service.errors import ConfigurationError
from service.inference.statistics import Timing
from service.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Tracing:
    """Makes spans and sends them to a collector over OTLP/HTTP, from a thread of its own.

    Args:
        endpoint: Base URL of the collector; `/v1/traces` is added.
        share: Of the traces that begin here and are kept; whoever sends a `traceparent` has decided already.

    Raises:
        ConfigurationError: The extra `otel` is not installed.
    """

    def __init__(self, endpoint: str, share: float = 1.0) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise ConfigurationError(
                "Traces need OpenTelemetry, which is not installed.",
                where="CANDOR_OTLP_ENDPOINT",
                found=str(error),
                remedy="Install the extra `otel`, or unset CANDOR_OTLP_ENDPOINT.",
            ) from error
        resource = Resource.create({"service.name": "candor", "service.version": VERSION})
        self._provider = TracerProvider(sampler=ParentBasedTraceIdRatio(share), resource=resource)
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("candor", VERSION)
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        # Stages are timed on the clock of perf_counter; spans say when by the calendar.
        self._zero_ns = time.time_ns() - time.perf_counter_ns()

    @contextlib.contextmanager
    def request(self, method: str, traceparent: str | None) -> Iterator[Span]:
        """Make a request's span, current inside the block; its trace's id stands in every line of the log.

        Args:
            method: HTTP method, by which it is called until its route is known.
            traceparent: W3C trace context of the client, if it sent one.
        """
        parent = self._propagator.extract({"traceparent": traceparent} if traceparent else {})
        with self._tracer.start_as_current_span(method, parent, self._trace.SpanKind.SERVER) as span:
            structlog.contextvars.bind_contextvars(trace_id=f"{span.get_span_context().trace_id:032x}")
            yield span

    @contextlib.contextmanager
    def job(self, name: str, attributes: dict[str, str]) -> Iterator[Span]:
        """Make the span of a job: a trace of its own, with a link to the request that asked for it, if one did."""
        asked = self._trace.get_current_span().get_span_context()
        links = [self._trace.Link(asked)] if asked.is_valid else []
        nobody = self._trace.set_span_in_context(self._trace.INVALID_SPAN)
        with self._tracer.start_as_current_span(name, nobody, links=links, attributes=attributes) as span:
            structlog.contextvars.bind_contextvars(trace_id=f"{span.get_span_context().trace_id:032x}")
            yield span

    def ended(self, span: Span, method: str, route: str, status: int, attributes: dict[str, Any]) -> None:
        """Say of a request's span what is known at its end."""
        span.update_name(f"{method} {route}")
        span.set_attributes(
            {"http.request.method": method, "http.route": route, "http.response.status_code": status, **attributes}
        )
        if status >= 500 or not status:
            span.set_status(self._trace.StatusCode.ERROR)

    def stages(self, times: tuple[float, float, float, float], timing: Timing) -> None:
        """Make the spans of an answered prediction below the current one.

        Args:
            times: When its body was there, when that was an array, when the answer was there, and when that was a body,
                in seconds on the clock of `time.perf_counter`.
            timing: Of its batch.
        """
        if not self._trace.get_current_span().is_recording():
            return
        arrived, decoded, answered, encoded = (round(one * 1e9) for one in times)
        calibrated_at = timing.inferred_ns - timing.calibrate_ns
        batch = {"candor.batch.requests": timing.requests, "candor.batch.rows": timing.rows}
        for name, began, ended, attributes in (
            ("decode", arrived, decoded, {}),
            ("queue", decoded, timing.began_ns, {}),
            ("infer", timing.began_ns, calibrated_at, batch),
            ("calibrate", calibrated_at, timing.inferred_ns, batch),
            ("decide", timing.inferred_ns, timing.ended_ns, batch),
            ("encode", answered, encoded, {}),
        ):
            span = self._tracer.start_span(name, attributes=attributes, start_time=self._zero_ns + began)
            span.end(self._zero_ns + max(began, ended))

    def close(self) -> None:
        """Send what waits, and stop."""
        self._provider.shutdown()
