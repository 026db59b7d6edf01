"""The exposition parses, and counts what happened."""

from __future__ import annotations

import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


def families(service: Any) -> dict[str, Any]:
    response = service.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(response.text)}


def test_what_happens_is_counted(service: Any, digits: Any) -> None:
    service.predict(digits.images[:7], policy="auto-read")
    service.predict(digits.images[:2])
    service.http.post("/predict", json={"inputs": [1]})
    service.http.post("/feedback", json={"items": [{"reference": "a", "label": "1"}, {"reference": "a", "label": "1"}]})
    service.http.get("/nowhere/else")
    assert service.runtime.log.flush()
    count = service.metric
    assert count("candor_predictions_total", model="digits", revision="r1", policy="auto-read") == 7
    assert count("candor_predictions_total", policy="", action="") == 2
    assert count("candor_confidence_count", revision="r1") == 9
    assert count("candor_predict_seconds_count", model="digits") == 2
    assert count("candor_feedback_items_total", outcome="pending") == 1
    assert count("candor_feedback_items_total", outcome="duplicate") == 1
    assert count("candor_http_requests_total", route="/predict", method="POST", status="200") == 2
    assert count("candor_http_requests_total", route="/predict", method="POST", status="422") == 1
    assert count("candor_http_requests_total", route="unmatched", status="404") == 1
    assert count("candor_log_written_total") == 9
    assert count("candor_log_dropped_total") == 0
    assert count("candor_queue_rows", model="digits") == 0
    assert count("candor_epoch", model="digits") == 1
    assert count("candor_revision_info", model="digits", revision="r1") == 1
    service.activate(service.propose_policy())
    assert count("candor_revision_info", revision="r2") == 1
    assert count("candor_revision_info", revision="r1") == 0


def test_refits_are_counted_by_outcome(service: Any, digits: Any) -> None:
    service.teach(digits.dimmed[:300], digits.labels[:300])
    state = service.recalibrate().json()["state"]
    assert state == "dry_run"
    assert service.metric("candor_recalibrations_total", model="digits", outcome="dry_run") == 1


def test_the_exposition_is_described_and_its_labels_are_few(shared: Any) -> None:
    for path in ("/a", "/b/c", "/v1/models/x/revisions", "/v1/models/y/predict", "/v1/jobs/j77"):
        shared.http.get(path)
    found = families(shared)
    for name, family in found.items():
        assert re.fullmatch(r"candor_[a-z_]+", name)
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
    routes = {sample.labels["route"] for sample in found["candor_http_requests"].samples}
    assert routes <= set(shared.application.api.openapi()["paths"]) | {"unmatched", "/openapi.json", "/docs"}
