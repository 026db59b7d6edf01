"""POST …/policies/{policy}/simulate against a running service: what would change, before anything does."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from candor import AsyncClient, Client

URL = "/v1/models/digits/policies/{}/simulate"
LOOSE = {
    "positive": "top",
    "bands": [{"action": "accept", "when": {"min_probability": 0.2}}, {"action": "review"}],
    "explore": {"share": 0.5, "actions": ["accept"]},
}


@pytest.fixture
def busy(service: Any, digits: Any) -> Any:
    """A service with a policy in force that reviews everything below 0.9, and labels for what it sought."""
    revision = service.propose_policy("default", share=0.9)
    service.activate(revision, reason="for the test")
    service.teach(digits.images[:200], digits.labels[:200])
    service.runtime.log.flush()
    return service


def test_changes_volumes_and_estimates(busy: Any, digits: Any) -> None:
    predictions = busy.predict(digits.images[:200], policy="default")
    busy.runtime.log.flush()
    confidence = np.array([prediction["confidence"] for prediction in predictions], dtype=np.float32)
    now = [prediction["decision"]["action"] for prediction in predictions]
    epoch = busy.revisions()["epoch"]
    response = busy.http.post(URL.format("default"), json={"document": LOOSE, "rows": 200, "flips": 5})
    assert response.status_code == 200, response.text
    answer = response.json()
    flips = [
        p["prediction_id"]
        for p, was in zip(predictions, now, strict=True)
        if was == "review" and p["confidence"] >= 0.2
    ]
    assert answer["rows"] == 200
    assert answer["decisions"]["flipped"] == len(flips) > 0
    assert {flip["id"] for flip in answer["decisions"]["flips"]} <= set(flips)
    assert len(answer["decisions"]["flips"]) == min(5, len(flips))
    assert answer["actions"]["accept"] == {"before": now.count("accept"), "after": int((confidence >= 0.2).sum())}
    assert answer["against"] == answer["policy"].replace("@2", "@1")
    # Nothing has moved; the proposal that the answer names waits.
    assert busy.revisions()["epoch"] == epoch
    states = {item["id"]: item["state"] for item in busy.revisions()["items"]}
    assert states[answer["revision"]] == "proposed"


def test_labels_make_estimates(busy: Any) -> None:
    answer = busy.http.post(URL.format("default")).json()
    accept = answer["expected"][0]
    assert answer["labelled"] > 0
    assert answer["decisions"]["flipped"] == 0
    for name in ("precision", "recall", "false_positive_rate", "flag_rate"):
        low, high = accept[name]["interval"]
        assert 0 <= low <= high <= 1
    low, high = accept["flag_rate"]["interval"]
    assert low <= accept["flag_rate"]["value"] <= high


def test_simulating_costs_one_look_and_putting_none_after_it(busy: Any) -> None:
    promise = {"positive": "3", "bands": [{"action": "flag", "when": {"min_precision": 0.5}}, {"action": "allow"}]}
    answers = [busy.http.post(URL.format("threes"), json={"document": promise}).json() for _ in range(2)]
    put = busy.http.put("/v1/models/digits/policies/threes", json=promise).json()
    assert answers[0]["revision"] == answers[1]["revision"] == put["id"]
    assert answers[0]["certified"]["flag"]["looks"] == put["policy"]["bands"][0]["certificate"]["looks"]
    assert answers[0]["against"] is None
    assert answers[0]["decisions"]["flipped"] is None
    compared = busy.http.post(URL.format("threes"), json={"document": promise, "against": "default"}).json()
    assert compared["decisions"]["flipped"] is not None


def test_a_window_without_traffic_says_nothing(busy: Any) -> None:
    answer = busy.http.post(URL.format("default"), json={"until": "2020-01-01T00:00:00Z"}).json()
    assert (answer["rows"], answer["window"]) == (0, None)
    assert answer["expected"][0]["precision"]["interval"] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("policy", "body", "status", "where"),
    [
        ("nobody", {}, 404, "policy"),
        ("default", {"against": "nobody"}, 404, "policy"),
        ("default", {"document": {**LOOSE, "id": "other"}}, 422, "/document/id"),
        ("default", {"document": {**LOOSE, "positive": "eleven"}}, 422, "/document/positive"),
        ("default", {"document": {**LOOSE, "bands": []}}, 422, "/document/bands"),
        ("default", {"rows": 0}, 422, "/rows"),
        ("default", {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, 422, "/since"),
    ],
)
def test_refusals_name_the_field(shared: Any, policy: str, body: dict[str, Any], status: int, where: str) -> None:
    name = "auto-read" if policy == "default" else policy
    response = shared.http.post(URL.format(name), json=body)
    assert response.status_code == status, response.text
    assert response.json()["where"] == where
    assert status != 404 or "`document`" in response.json()["remedy"]


def test_both_clients_read_what_a_policy_would_have_done(busy: Any) -> None:
    with Client(busy.url) as client:
        found = client.simulate("default", LOOSE, rows=200, flips=3)
        assert (found.rows, found.against, found.review_all) == (200, "default@1", False)
        assert found.decisions.flipped
        assert found.decisions.flipped == sum(change.rows for change in found.decisions.changes)
        assert {(flip.before, flip.after) for flip in found.decisions.flips} == {("review", "accept")}
        assert sum(volume.after for volume in found.actions.values()) == 200
        assert found.document["revision"] == found.revision == client.revisions().items[0].id
        alone = client.simulate("other", LOOSE)
        assert (alone.against, alone.decisions.flipped, alone.actions["accept"].before) == (None, None, None)
        assert client.simulate("default", until="2020-01-01T00:00:00Z").window is None

    async def ask() -> Any:
        async with AsyncClient(busy.url, model="digits") as opened:
            return await opened.simulate("default", LOOSE, rows=200, flips=3)

    assert asyncio.run(ask()) == found
