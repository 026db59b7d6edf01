"""What an activation does to the traffic is replayed first, shown, and accepted with a reason if it is much."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bundle as bundles
from bundle import Bundle
from candor import Client, ConflictError
from candor.contract.revisions import Pointer
from candor.contract.traffic import TrafficChange

from ..conftest import Digits, contents

pytestmark = pytest.mark.usefixtures("proofs_here", "refits_here")
LAST = {"action": "review"}
REVISIONS = "/v1/models/digits/revisions"


def put(service: Any, share: float, **changes: Any) -> str:
    bands = [{"action": "accept", "when": {"min_probability": share}}, {"action": "review"}]
    answer = service.http.put("/v1/models/digits/policies/plain", json={"positive": "top", "bands": bands} | changes)
    assert answer.status_code == 201, answer.text
    revision: str = answer.json()["id"]
    return revision


@pytest.fixture
def service(start: Callable[..., Any], digits: Digits) -> Any:
    found = start()
    found.activate(put(found, 0.1))
    found.predict(digits.images[:300], policy="plain")
    assert found.runtime.log.flush()
    return found


def test_a_change_beyond_the_limit_is_refused_until_it_is_accepted_with_a_reason(service: Any) -> None:
    loud = put(service, 0.999)
    epoch = service.revisions()["epoch"]
    for body in ({}, {"reason": "more care"}, {"accept_change": True}):
        refused = service.move(f"revisions/{loud}/activate", epoch, **body)
        assert refused.status_code == 409, refused.text
        assert "would change the share of" in refused.json()["detail"]
        assert "accept_change" in refused.json()["remedy"]
    assert service.revisions()["epoch"] == epoch
    preview = TrafficChange.model_validate(service.http.get(f"{REVISIONS}/{loud}/traffic").json(), extra="forbid")
    answer = service.move(f"revisions/{loud}/activate", epoch, accept_change=True, reason="more care")
    moved = Pointer.model_validate(answer.json(), extra="forbid")
    assert moved.traffic == preview
    mix = preview.policies["plain"]
    assert (preview.rows, mix.rows, preview.limit) == (300, 300, 0.1)
    assert mix.actions["accept"].before == 1.0
    assert mix.actions["accept"].after == pytest.approx(1 - mix.actions["review"].after)
    assert mix.largest > 0.9
    entry = service.http.get("/v1/models/digits/audit?limit=1").json()["items"][0]
    assert entry["detail"]["accepted"] == list(preview.exceeds)
    assert "traffic" not in service.rollback(), "a rollback is never refused, and waits for nothing"


def test_the_dashboard_shows_the_change_and_has_a_box_to_accept_it(service: Any) -> None:
    segments = {"values": ["DE"], "fallback": "review"}
    calm, loud = put(service, 0.2), put(service, 0.999)
    address, epoch = "/dashboard/models/digits/revisions", service.revisions()["epoch"]
    shown = service.http.get(f"{address}/{calm}/activate?epoch={epoch}").text
    assert ("newest 300 predictions" in shown, 'name="accept_change"' in shown) == (True, False)
    shown = service.http.get(f"{address}/{loud}/activate?epoch={epoch}").text
    assert "would change the share of" in shown
    assert 'name="accept_change"' in shown
    token = re.search(r'name="token" value="([^"]+)"', shown)
    assert token is not None
    form = {"token": token[1], "epoch": str(epoch), "reason": "more care"}
    same = {"sec-fetch-site": "same-origin"}
    assert service.http.post(f"{address}/{loud}/activate", data=form, headers=same).status_code == 409
    accepted = form | {"accept_change": "yes"}
    early = service.http.post(f"{address}/{loud}/activate", data=accepted | {"guard": "3600"}, headers=same)
    assert (early.status_code, "The guard would roll back" in early.text) == (409, True)
    wrong = service.http.post(f"{address}/{loud}/activate", data=accepted | {"guard": "soon"}, headers=same)
    assert wrong.status_code == 422
    done = service.http.post(f"{address}/{loud}/activate", data=accepted | {"guard": ""}, headers=same)
    assert (done.status_code, service.revisions()["active"]) == (303, loud)
    by_country = put(
        service, 0.5, segments=segments, bands=[{"action": "accept", "when": {"min_precision": 0.8}}, LAST]
    )
    assert "all other" in service.http.get(f"{address}/{by_country}").text


def test_a_small_change_needs_nothing_and_a_request_tightens_the_limit(service: Any) -> None:
    calm = put(service, 0.2)
    epoch = service.revisions()["epoch"]
    with Client(service.url, model="digits") as client:
        change = client.traffic_change(calm)
        assert (change.exceeds, change.limit) == ((), 0.1)
        assert client.traffic_change(calm, max_change=0.9).limit == 0.1, "a request cannot loosen the limit"
        assert client.traffic_change(calm, max_change=0.01).limit == 0.01
        loud = put(service, 0.999)
        with pytest.raises(ConflictError, match="would change the share"):
            client.activate(loud, epoch=epoch, max_change=1.0)
        moved = client.activate(calm, epoch=epoch)
        assert moved.traffic is not None
        assert moved.traffic.policies["plain"].largest <= 0.1


def test_without_rows_a_policy_that_sends_every_row_to_review_is_accepted_first(start: Callable[..., Any]) -> None:
    fresh = start()
    fresh.activate(put(fresh, 0.1))
    revision = put(fresh, 0.1, bands=[{"action": "accept", "when": {"min_precision": 0.99999}}, {"action": "review"}])
    epoch = fresh.revisions()["epoch"]
    change = fresh.http.get(f"{REVISIONS}/{revision}/traffic").json()
    assert (change["rows"], change["not_compared"]) == (0, "No prediction of this model is logged.")
    refused = fresh.move(f"revisions/{revision}/activate", epoch, reason="try")
    assert (refused.status_code, refused.json()["where"]) == (409, "/accept_change")
    assert "would give every row 'review'" in refused.json()["detail"]


def test_a_first_put_whose_promise_fails_is_accepted_first(start: Callable[..., Any], digits: Digits) -> None:
    fresh = start()
    failing = [{"action": "accept", "when": {"min_precision": 0.99999}}, {"action": "review"}]
    refused = fresh.move(f"revisions/{put(fresh, 0.1, bands=failing)}/activate", fresh.revisions()["epoch"])
    assert (refused.status_code, refused.json()["where"]) == (409, "/accept_change")
    assert "Policy 'plain' would give every row 'review'" in refused.json()["detail"]
    fresh.predict(digits.images[:200])
    assert fresh.runtime.log.flush()
    change = fresh.http.get(f"{REVISIONS}/{put(fresh, 1.0)}/traffic").json()
    assert change["exceeds"] == ["The new policy 'plain' would send every recent row to review."]
    assert fresh.http.get(f"{REVISIONS}/{put(fresh, 0.1)}/traffic").json()["exceeds"] == []


def test_an_automatic_activation_beyond_the_limit_stays_a_proposal(start: Callable[..., Any], digits: Digits) -> None:
    service = start(limit_action_change=0.0)
    bands = [{"action": "accept", "when": {"min_probability": 0.8}}, LAST]  # it promises nothing that could be lost
    fixed = {"positive": "top", "bands": bands, "explore": {"share": 1.0, "actions": ["accept"]}}
    service.activate(service.http.put("/v1/models/digits/policies/auto-read", json=fixed).json()["id"])
    service.teach(digits.dimmed, digits.labels)
    done = service.recalibrate(mode="activate").json()
    assert done["gate"]["unattended"], done["gate"]["unattended_reason"]
    assert done["state"] == "proposed"
    assert "Not activated automatically: Policy " in done["summary"]
    assert "Policy 'auto-read' would change the share of" in done["summary"]
    change = TrafficChange.model_validate(done["traffic"], extra="forbid")
    assert change.policies["auto-read"].exceeds
    assert service.revisions()["active"] == "r2"


@pytest.mark.parametrize("keep_inputs", ["all", "off"])
def test_another_model_is_replayed_on_stored_inputs(
    start: Callable[..., Any], digits: Digits, tmp_path: Path, keep_inputs: str
) -> None:
    root = tmp_path / "bundles"
    first: Bundle = bundles.verify(bundles.find(digits.root)[0].path)
    bundles.write(root, contents(first))
    service = start(bundles=root, keep_inputs=keep_inputs, policies=None)
    service.activate(put(service, 0.1))
    service.predict(digits.images[:120], policy="plain")
    assert service.runtime.log.flush()
    # The same graph with another name of its producer: another model to the service, with the same logits.
    import onnx

    graph = onnx.load_from_string(first.model_bytes)
    graph.doc_string = "another"
    bundles.write(root, replace(contents(first), model_bytes=graph.SerializeToString()))
    proposed = service.http.post("/v1/models/digits/load").json()["proposed"]["2"]
    change = service.http.get(f"{REVISIONS}/{proposed}/traffic").json()
    if keep_inputs == "all":
        assert (change["rows"], change["policies"]["plain"]["largest"], change["exceeds"]) == (120, 0.0, [])
    else:
        assert (change["rows"], change["policies"]) == (0, {})
        assert change["exceeds"] == [f"What it does to the traffic is not known. {change['not_compared']}"]
        refused = service.move(f"revisions/{proposed}/activate", service.revisions()["epoch"], reason="try")
        assert (refused.status_code, refused.json()["where"]) == (409, "/accept_change")
        assert "CANDOR_KEEP_INPUTS=all" in change["not_compared"]
