"""The exposition parses, and counts what happened."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from service.dashboard import routes as dashboard
from service.errors import OverloadedError
from service.settings import Settings

STAGES = ("decode", "queue", "infer", "calibrate", "decide", "encode")


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
    assert count("candor_calibration_bin_predictions_total", revision="r1", positive="top") == 9
    assert count("candor_predict_seconds_count", model="digits") == 2
    assert count("candor_http_request_seconds_count", route="/predict") == 3
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
    assert "nv_inference" not in service.http.get("/metrics").text
    assert count("candor_ready") == count("candor_model_ready", model="digits") == 1
    assert count("candor_bundles_refused", model="digits") == 0
    assert count("candor_state_bytes") > 0
    assert count("candor_state_free_bytes") > 0
    assert count("process_resident_memory_bytes") > 10_000_000
    service.activate(service.propose_policy())
    assert count("candor_revision_info", revision="r2") == 1
    assert count("candor_revision_info", revision="r1") == 0


def test_postgresqls_disk_is_that_of_a_folder_on_it(postgresql_url: str, start: Any, tmp_path: Path) -> None:
    """Of a folder that it may not enter: compose mounts PostgreSQL's own, which only that user reads."""
    state = postgresql_url.replace("postgresql://", "postgresql+psycopg://")
    closed = tmp_path / "data"
    closed.mkdir(mode=0)
    service = start(state=state, state_disk=closed)
    free = shutil.disk_usage(tmp_path).free
    assert service.metric("candor_state_free_bytes") == pytest.approx(free, rel=0.5)
    assert "candor_state_bytes" not in service.http.get("/metrics").text
    with pytest.raises(ValidationError, match="state_disk"):
        Settings(state_disk=tmp_path / "none")


def test_tritons_names_are_those_of_the_statistics(start: Any, digits: Any) -> None:
    service = start(triton_metrics=True)
    service.predict(digits.images[:7])
    service.predict(digits.images[:2])
    service.http.post("/predict?policy=auto-read", json={"inputs": digits.images[:1].tolist()})
    (of_v2,) = service.http.get("/v2/models/digits/stats").json()["model_stats"]
    text = service.http.get("/metrics").text
    stats = of_v2["inference_stats"]
    for name, value in {
        "request_success": 3,
        "request_failure": 0,
        "count": 10,
        "exec_count": of_v2["execution_count"],
        "request_duration_us": stats["success"]["ns"] / 1000,
        "queue_duration_us": stats["queue"]["ns"] / 1000,
        "compute_input_duration_us": 0,
        "compute_infer_duration_us": stats["compute_infer"]["ns"] / 1000,
        "compute_output_duration_us": stats["compute_output"]["ns"] / 1000,
    }.items():
        assert f"\n# TYPE nv_inference_{name} counter\n" in text
        assert service.metric(f"nv_inference_{name}", model="digits", version="1") == value
    service.activate(service.propose_policy())
    service.predict(digits.images[:2])
    assert service.metric("nv_inference_count", version="2") == 2
    assert service.metric("nv_inference_count") == 12


def test_runs_and_waits_are_those_of_the_statistics(start: Any, digits: Any) -> None:
    """Over a change of the revision, which ends no series."""
    service = start(max_batch_size=8)
    for rows in (1, 3, 3, 20):  # 20 rows are three runs: 8, 8 and 4
        service.predict(digits.images[:rows])
    service.activate(service.propose_policy())
    service.predict(digits.images[:2])
    count = service.metric
    assert count("candor_run_rows_count", model="digits") == 7
    assert count("candor_run_rows_sum") == 29
    bounds = [count("candor_run_rows_bucket", le=le) for le in ("1.0", "2.0", "4.0", "8.0", "1024.0", "+Inf")]
    assert bounds == [1, 2, 5, 7, 7, 7]
    stats = service.runtime.models.get("digits").plane.statistics.values()
    sums = {stage: count("candor_stage_seconds_sum", model="digits", stage=stage) for stage in STAGES}
    assert {count("candor_stage_seconds_count", stage=stage) for stage in STAGES} == {5}
    assert min(sums.values()) > 0
    assert sums["queue"] == pytest.approx(sum(one.queue.ns for one in stats) / 1e9)
    assert sums["infer"] + sums["calibrate"] == pytest.approx(sum(one.infer.ns for one in stats) / 1e9)
    assert sums["decide"] == pytest.approx(sum(one.finish.ns for one in stats) / 1e9)


def test_refusals_are_counted_by_reason(start: Any, hold: Any, digits: Any) -> None:
    service = start(max_queued_rows=4)
    plane = service.runtime.models.get("digits").plane

    def refused() -> dict[str, float]:
        reasons = ("full", "deadline", "gone", "failed")
        return {reason: service.metric("candor_refused_requests_total", reason=reason) for reason in reasons}

    assert refused() == dict.fromkeys(("full", "deadline", "gone", "failed"), 0)
    held = hold(plane)

    def predict(rows: int, deadline_s: float = 60) -> asyncio.Future[Any]:
        return asyncio.ensure_future(plane.predict(plane.served, digits.images[:rows], deadline_s=deadline_s))

    async def ask() -> list[Any]:
        first = predict(1)
        await asyncio.to_thread(held.wait_until_busy)
        gone, late, last = predict(1), predict(1, deadline_s=0), predict(2)
        await asyncio.to_thread(held.wait_for_rows, 4)
        with pytest.raises(OverloadedError):
            await predict(1)
        with pytest.raises(OverloadedError):
            plane.check_room(plane.served)
        gone.cancel()
        held.go.set()
        return await asyncio.gather(first, gone, late, last, return_exceptions=True)

    outcomes = [type(outcome).__name__ for outcome in asyncio.run(ask())]
    assert outcomes == ["Answer", "CancelledError", "DeadlineExceededError", "Answer"]
    assert refused() == {"full": 2, "deadline": 1, "gone": 1, "failed": 0}


@pytest.mark.usefixtures("refits_here")
def test_refits_are_counted_by_outcome(service: Any, digits: Any) -> None:
    service.teach(digits.dimmed[:300], digits.labels[:300])
    state = service.recalibrate().json()["state"]
    assert state == "dry_run"
    count = service.metric
    assert count("candor_recalibrations_total", model="digits", outcome="dry_run") == 1
    assert count("candor_recalibrations_total", model="digits", outcome="failed") == 0
    assert count("candor_refit_seconds_count", model="digits") == count("candor_gate_verdicts_total") == 1
    text = service.http.get("/metrics").text
    assert 'candor_recalibrations_total{model="digits",outcome="failed"} 0.0' in text  # its first failure is a rise


def test_the_exposition_is_described_and_its_labels_are_few(shared: Any) -> None:
    for path in ("/a", "/b/c", "/v1/models/x/revisions", "/v1/models/y/predict", "/v1/jobs/j77"):
        shared.http.get(path)
    found = families(shared)
    for name, family in found.items():
        assert re.fullmatch(r"(candor|process)_[a-z_]+", name)
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram", "summary")
    routes = {sample.labels["route"] for sample in found["candor_http_requests"].samples}
    pages = {route.path for router in dashboard.routers() for route in router.routes}
    assert routes <= set(shared.application.api.openapi()["paths"]) | pages | {
        "unmatched",
        "/openapi.json",
        "/docs",
        "/v2/",
    }


def test_a_damaged_bundle_shows(launch: Any, digits: Any, tmp_path: Any) -> None:
    root = tmp_path / "bundles"
    shutil.copytree(digits.root, root)
    shutil.copytree(root / "digits" / "1", root / "broken" / "1")  # another model's manifest
    service = launch(tmp_path, bundles=root)
    try:
        assert service.metric("candor_ready") == 0
        assert service.metric("candor_model_ready", model="digits") == 1
        assert service.metric("candor_model_ready", model="broken") == 0
        assert service.metric("candor_bundles_refused", model="broken") == 1
    finally:
        service.close()
