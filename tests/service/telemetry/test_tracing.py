"""Traces of a real service arrive at a real collector, and say where a prediction's time went."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import ValidationError

from service.settings import Settings
from tests.waiting import PATIENCE_S, WAIT, until

from .test_logs import lines

STAGES = ["decode", "queue", "infer", "calibrate", "decide", "encode"]


class Collector:
    """An OTLP/HTTP collector that keeps the spans it is sent."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.paths: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.paths.add(self.path)
                for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in of_resource.scope_spans:
                        collector.spans += scope.spans
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def wait_for(self, name: str, count: int = 1) -> list[Any]:
        def found() -> list[Any]:
            return [span for span in self.spans if span.name == name]

        until(lambda: len(found()) >= count, lambda: f"{name}: {sorted({span.name for span in self.spans})}")
        return found()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_a_prediction_a_feedback_and_a_refit_are_traced(spawn: Any, digits: Any, collector: Collector) -> None:
    spawn.environment["OTEL_BSP_SCHEDULE_DELAY"] = "50"
    service = spawn(otlp_endpoint=collector.url, access_log="1")
    trace_id, parent_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    body = {"inputs": digits.images[:3].tolist()}
    headers = {"traceparent": f"00-{trace_id}-{parent_id}-01"}
    assert service.http.post("/predict", json=body, headers=headers).status_code == 200
    [request] = collector.wait_for("POST /predict")
    collector.wait_for("encode")
    assert collector.paths == {"/v1/traces"}
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (trace_id, parent_id)
    said = attributes(request)
    assert (said["http.response.status_code"], said["model"], said["revision"]) == (200, "digits", "r1")
    stages = sorted(
        (span for span in collector.spans if span.parent_span_id == request.span_id),
        key=lambda span: (span.start_time_unix_nano, STAGES.index(span.name)),
    )
    assert [span.name for span in stages] == STAGES
    for span in stages:
        assert request.start_time_unix_nano - 10**7 <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= request.end_time_unix_nano + 10**7
    for before, after in pairwise(stages[:5]):
        assert (
            before.end_time_unix_nano <= after.start_time_unix_nano + 1_000
        )  # one after the other, to the microsecond
    infer = stages[2]
    assert attributes(infer) == {"candor.batch.requests": 1, "candor.batch.rows": 3}

    service.http.post("/feedback", json={"items": [{"reference": "a", "label": "1"}]})
    [feedback] = collector.wait_for("POST /feedback")
    assert feedback.trace_id.hex() != trace_id

    service.teach(digits.dimmed[:300], digits.labels[:300])
    until(lambda: service.metric("candor_log_written_total") >= 303)
    job = service.http.post("/recalibrate", json={}, headers=WAIT)
    [refit] = collector.wait_for("refit")
    [asked] = collector.wait_for("POST /recalibrate")
    assert [link.span_id for link in refit.links] == [asked.span_id]
    assert refit.trace_id != asked.trace_id
    assert job.json()["state"] == "dry_run"

    service.http.post("/predict", json={"inputs": [1]}, headers={"traceparent": "nonsense"})
    assert len(collector.wait_for("POST /predict", 4)) == 4

    service.popen.terminate()
    status, _ = service.end()
    assert status == 0
    traced = [line for line in lines(service) if line.get("route") == "/predict"]
    assert traced[0]["trace_id"] == trace_id
    assert all(len(line["trace_id"]) == 32 for line in traced)


def test_requests_of_one_batch_say_so(start: Any, digits: Any, hold: Any, collector: Collector) -> None:
    service = start(otlp_endpoint=collector.url)
    held = hold(service.runtime.models.get("digits").plane)
    body = {"inputs": digits.images[:2].tolist()}

    def ask() -> None:
        assert service.http.post("/predict", json=body).status_code == 200

    threads = [threading.Thread(target=ask) for _ in range(3)]
    threads[0].start()
    held.wait_until_busy()
    for thread in threads[1:]:
        thread.start()
    held.wait_for_rows(4)
    held.go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    service.runtime.tracing._provider.force_flush()
    batches = sorted(attributes(span)["candor.batch.requests"] for span in collector.wait_for("infer", 3))
    assert batches == [1, 2, 2]


def test_a_share_of_nothing_traces_nothing_and_a_lost_collector_harms_nothing(
    start: Any, digits: Any, collector: Collector
) -> None:
    service = start(otlp_endpoint=collector.url, trace_share=0)
    assert len(service.predict(digits.images[:2])) == 2
    service.runtime.tracing._provider.force_flush()
    assert collector.spans == []


def test_without_an_endpoint_nothing_of_it_is_imported() -> None:
    code = "import sys, service.app; sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("endpoint", ["foo", "collector:4318", "grpc://collector:4317"])
def test_what_is_not_the_url_of_a_collector_is_refused(endpoint: str) -> None:
    with pytest.raises(ValidationError, match="otlp_endpoint"):
        Settings(otlp_endpoint=endpoint)
