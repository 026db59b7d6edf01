"""OpenTelemetry traces, with the extra `otel` and a configured collector.

The hot path only records the times of a batch's stages; the spans of a prediction are made from them when its response
is sent. A request's span is current until then, so that a job that it starts can link to it.
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
    """Makes spans and sends them to a collector over OTLP/HTTP from a separate thread.

    Args:
        endpoint: Base URL of the collector; `/v1/traces` is added.
        share: Share of traces to keep; a client's `traceparent` overrides it.

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
                "Traces require OpenTelemetry, which is not installed.",
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
        # Stages are timed by perf_counter; spans need calendar time.
        self._zero_ns = time.time_ns() - time.perf_counter_ns()

    @contextlib.contextmanager
    def request(self, method: str, traceparent: str | None) -> Iterator[Span]:
        """Open a request's span for the block, and add its trace id to every log line.

        Args:
            method: Method of HTTP or gRPC: the span's name until the route is known.
            traceparent: The client's W3C trace context, if any.
        """
        parent = self._propagator.extract({"traceparent": traceparent} if traceparent else {})
        with self._tracer.start_as_current_span(method, parent, self._trace.SpanKind.SERVER) as span:
            structlog.contextvars.bind_contextvars(trace_id=f"{span.get_span_context().trace_id:032x}")
            yield span

    @contextlib.contextmanager
    def job(self, name: str, attributes: dict[str, str]) -> Iterator[Span]:
        """Open the span of a job: a separate trace, linked to the request that started it, if any."""
        asked = self._trace.get_current_span().get_span_context()
        links = [self._trace.Link(asked)] if asked.is_valid else []
        nobody = self._trace.set_span_in_context(self._trace.INVALID_SPAN)
        with self._tracer.start_as_current_span(name, nobody, links=links, attributes=attributes) as span:
            structlog.contextvars.bind_contextvars(trace_id=f"{span.get_span_context().trace_id:032x}")
            yield span

    def ended(self, span: Span, name: str, attributes: dict[str, Any], *, failed: bool) -> None:
        """Set a request span's final name, its attributes, and whether the service failed."""
        span.update_name(name)
        span.set_attributes(attributes)
        if failed:
            span.set_status(self._trace.StatusCode.ERROR)

    def stages(self, times: tuple[float, float, float, float], timing: Timing) -> None:
        """Add the spans of an answered prediction below the current span.

        Args:
            times: Seconds of `time.perf_counter` when the body was read, decoded, answered and encoded.
            timing: Times of its batch.
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
        """Send waiting spans and stop."""
        self._provider.shutdown()
