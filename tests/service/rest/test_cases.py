"""The review queue over HTTP: from a prediction that is sent to review to its label."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from structlog.testing import capture_logs

import bundle as bundles
from service.state.cases import CaseStore
from tests.service import imported_models
from tests.service.conftest import contents

CASES = "/v1/models/digits/cases"
POLICY = {
    "positive": "top",
    "bands": [{"action": "accept", "when": {"min_probability": 1.0}}, {"action": "review"}],
    "review": {"due": "4h"},
}


@pytest.fixture(scope="module")
def reviewing(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service whose policy sends nearly every row to review."""
    running = launch(tmp_path_factory.mktemp("cases"), keep_inputs="sought")
    put = running.http.put("/v1/models/digits/policies/all", json=POLICY)
    running.activate(put.json()["id"])
    yield running
    running.close()


@pytest.fixture
def waiting(reviewing: Any, digits: Any) -> list[str]:
    """Three cases, the most doubtful first; no others wait."""
    found = reviewing.http.get(CASES, params={"limit": 500}).json()["items"]
    for case in found:
        reviewing.http.post(f"{CASES}/{case['id']}/skip", json={"reason": "of an earlier test"})
    body = {"inputs": digits.images[:40].tolist(), "references": [f"scan-{number}" for number in range(40)]}
    rows = reviewing.http.post("/predict", params={"policy": "all"}, json=body).json()["predictions"]
    rows.sort(key=lambda row: row["confidence"])
    assert {row["decision"]["action"] for row in rows[:3]} == {"review"}
    assert reviewing.runtime.log.flush()
    items = [{"prediction_id": row["prediction_id"], "label": "1"} for row in rows[3:]]
    assert reviewing.http.post("/feedback", json={"items": items}).json()["stored"] == len(items)
    return [row["prediction_id"] for row in rows[:3]]


def post(service: Any, path: str, status: int = 200, **body: Any) -> Any:
    response = service.http.post(f"{CASES}/{path}", json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_a_case_shows_the_row_and_why_it_waits(reviewing: Any, waiting: list[str], digits: Any) -> None:
    page = reviewing.http.get(CASES).json()
    assert [item["id"] for item in page["items"]] == waiting
    case = reviewing.http.get(f"{CASES}/{waiting[0]}").json()
    number = int(case["reference"].removeprefix("scan-"))
    assert np.array_equal(case["inputs"], digits.images[number])
    assert max(case["probabilities"], key=case["probabilities"].get) == case["predicted"]
    assert case["probability"] == pytest.approx(1 - case["confidence"])
    assert (case["state"], case["selected"], case["propensity"], case["overdue"]) == ("open", "all", 1.0, False)


def test_a_label_is_feedback_of_a_reviewer(reviewing: Any, waiting: list[str]) -> None:
    before = reviewing.metric("candor_feedback_items_total", outcome="stored")
    (case,) = post(reviewing, "claim")["items"]
    assert (case["id"], case["claimed_by"]) == (waiting[0], "local")
    assert post(reviewing, f"{case['id']}/label", label="7", lease=case["lease"])["feedback"] == "stored"
    assert reviewing.metric("candor_feedback_items_total", outcome="stored") == before + 1
    again = {"items": [{"prediction_id": case["id"], "label": "3"}]}
    assert reviewing.http.post("/feedback", json=again).json()["conflicts"] == 1
    done = reviewing.http.get(CASES, params={"state": "labelled", "limit": 500}).json()["items"][-1]
    assert (done["id"], done["label"]) == (case["id"], "7")


def test_pages_follow_one_another(reviewing: Any, waiting: list[str]) -> None:
    seen, after = [], {}
    for _ in waiting:
        page = reviewing.http.get(CASES, params={"limit": 1, **after}).json()
        seen += [item["id"] for item in page["items"]]
        after = {"after": page["next"]}
    assert (seen, page["next"]) == (waiting, None)


def test_pages_read_the_counts_from_memory(reviewing: Any, waiting: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str | None] = []
    counted = CaseStore.counts
    monkeypatch.setattr(CaseStore, "counts", lambda store, *of: reads.append(None) or counted(store, *of))
    for _ in range(5):
        assert reviewing.http.get(CASES, params={"limit": 1}).json()["items"][0]["id"] == waiting[0]
    assert len(reads) <= 1


def test_pages_by_a_time_follow_one_another(reviewing: Any, waiting: list[str]) -> None:
    seen, after = [], {}
    for _ in waiting:
        page = reviewing.http.get(CASES, params={"limit": 1, "order": "due", **after}).json()
        seen += [item["id"] for item in page["items"]]
        after = {"after": page["next"]}
    assert (sorted(seen), page["next"]) == (sorted(waiting), None)


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("claim", {"count": 0}, 422, "input"),
        ("claim", {"count": 101}, 422, "input"),
        ("claim", {"lease_s": 1e9}, 422, "input"),
        ("claim", {"lease_s": "NaN"}, 422, "input"),
        ("claim", {"counts": 1}, 422, "input"),
        ("claim", {"policy": "\x00"}, 422, "input"),
        ("{case}/label", {"label": "cat"}, 422, "unknown-label"),
        ("{case}/label", {"label": ""}, 422, "input"),
        ("{case}/label", {"label": "7", "lease": 2**70}, 422, "input"),
        ("{case}/label", {"label": "7", "lease": 99}, 409, "case-state"),
        ("{case}/label", {}, 422, "input"),
        ("{case}/skip", {"reason": ""}, 422, "input"),
        ("{case}/skip", {"reason": "   "}, 422, "input"),
        ("{case}/skip", {"reason": "x" * 501}, 422, "input"),
        ("{case}/release", {}, 409, "case-state"),
        ("{case}/assign", {"to": "x\x00"}, 422, "input"),
        ("{case}/assign", {}, 422, "input"),
        ("01J0/label", {"label": "7"}, 404, "unknown-case"),
        ("%00/skip", {"reason": "dark"}, 404, "unknown-case"),
        ("%ED%A0%80/claim", {}, 404, "unknown-case"),
    ],
)
def test_a_bad_request_is_refused_and_changes_nothing(
    reviewing: Any, waiting: list[str], path: str, body: dict[str, Any], status: int, kind: str
) -> None:
    before = reviewing.http.get(f"{CASES}/{waiting[0]}").json()
    response = reviewing.http.post(f"{CASES}/{path.format(case=waiting[0])}", json=body)
    assert (response.status_code, response.json()["type"]) == (status, f"/errors/{kind}"), response.text
    assert reviewing.http.get(f"{CASES}/{waiting[0]}").json() == before


@pytest.mark.parametrize(
    ("query", "status"),
    [("state=done", 422), ("order=amount", 422), ("limit=501", 422), ("after=x", 422), ("after=nan_" + "0" * 26, 422),
     ("after=9e999_" + "0" * 26, 422), ("order=due&after=1e30_" + "0" * 26, 422),
     (f"order=due&after={2**63}_" + "0" * 26, 422), (f"state=labelled&after={2**63 - 1}_" + "0" * 26, 200),
     ("state=skipped&after=1.5_" + "0" * 26, 422), ("policy=none", 200), ("assignee=%00", 422)],
)  # fmt: skip
def test_queries(reviewing: Any, query: str, status: int) -> None:
    response = reviewing.http.get(f"{CASES}?{query}")
    assert response.status_code == status, response.text


def test_a_capacity_leaves_the_request_for_a_label_open(start: Callable[..., Any], digits: Any) -> None:
    service = start()
    limited = POLICY | {"review": {"max_per_day": 24, "random_share": 0.5}}
    service.activate(service.http.put("/v1/models/digits/policies/few", json=limited).json()["id"])
    body = {"inputs": digits.images[:200].tolist()}
    rows = service.http.post("/predict", params={"policy": "few"}, json=body).json()["predictions"]
    for row in rows:
        expected = None if row["decision"]["action"] == "review" else False
        assert row["decision"]["label_sought"] is expected
    assert service.runtime.log.flush()
    found = service.http.get(CASES, params={"limit": 500}).json()["items"]
    reviews = sum(row["decision"]["action"] == "review" for row in rows)
    assert 0 < len(found) <= reviews
    assert {item["selected"] for item in found} <= {"random", "ranked"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "CANDOR_LOG_MODE=background"),
        ({"log_mode": "off"}, "CANDOR_LOG_MODE=off"),
        ({"log_mode": "sync", "log_sample": 0.5}, "CANDOR_LOG_SAMPLE=0.5"),
        ({"log_mode": "sync"}, None),
    ],
)
def test_a_log_that_may_lack_cases_is_warned_of(
    start: Callable[..., Any], settings: dict[str, Any], reason: str | None
) -> None:
    service = start(**settings)
    proposed = service.http.put("/v1/models/digits/policies/all", json=POLICY).json()["id"]
    with capture_logs() as lines:
        service.activate(proposed)
    warned = [(line["reason"], line["policies"]) for line in lines if line["event"] == "cases may be missing"]
    assert warned == ([] if reason is None else [(reason, ["all"])])


def test_a_case_of_a_table_shows_its_columns(start: Callable[..., Any], tmp_path: Path) -> None:
    imported_models.payments(tmp_path / "bundles")
    service = start(bundles=tmp_path / "bundles", default_model="payments", policies=None, keep_inputs="sought")
    model = service.http.get("/v1/models").json()["items"][0]
    put = service.http.put("/v1/models/payments/policies/all", json={"bands": [{"action": "review"}], "review": {}})
    path = f"/v1/models/payments/revisions/{put.json()['id']}/activate"
    epoch = service.http.get("/v1/models/payments/revisions").headers["etag"]
    assert service.http.post(path, json={"reason": "a test"}, headers={"if-match": epoch}).status_code == 200
    row = {column["name"]: (column["categories"] or [524.2])[0] for column in model["column_types"]}
    answer = service.http.post("/v1/models/payments/predict", json={"inputs": [row]})
    assert answer.status_code == 200, answer.text
    assert service.runtime.log.flush()
    case = answer.json()["predictions"][0]["prediction_id"]
    assert service.http.get(f"/v1/models/payments/cases/{case}").json()["inputs"] == row


def test_a_case_has_the_labels_of_the_bundle_that_predicted_it(
    start: Callable[..., Any], digits: Any, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(digits.root, tmp_path / "bundles"))
    service = start(bundles=root, policies=None)
    service.activate(service.http.put("/v1/models/digits/policies/all", json=POLICY).json()["id"])
    body = {"inputs": digits.images[:40].tolist()}
    rows = service.http.post("/predict", params={"policy": "all"}, json=body).json()["predictions"]
    assert service.runtime.log.flush()
    first, second, *_ = (row["prediction_id"] for row in rows if row["decision"]["action"] == "review")
    graph = onnx.load_from_string(digits.bundle.model_bytes)
    graph.doc_string = "another model file"
    named = tuple(f"digit-{number}" for number in range(10))
    bundles.write(root, replace(contents(digits.bundle), labels=named, model_bytes=graph.SerializeToString()))
    service.activate(service.http.post("/v1/models/digits/load").json()["proposed"]["2"])
    service.activate(service.propose_policy("other"))  # lets the first bundle go
    case = service.http.get(f"{CASES}/{first}").json()
    assert (case["labels"], len(case["probabilities"])) == (list(digits.bundle.manifest.labels), 10)
    assert case["predicted"] in case["labels"]
    unknown = post(service, f"{first}/label", 422, label="digit-1")
    assert (unknown["where"], unknown["expected"]) == ("/label", case["labels"])
    assert post(service, f"{first}/label", label="1")["label"] == "1"
    shutil.rmtree(root / "digits" / "1")
    assert service.http.get(f"{CASES}/{second}").json()["labels"] is None
    assert "bundle that predicted this case is gone" in post(service, f"{second}/label", 422, label="1")["detail"]
