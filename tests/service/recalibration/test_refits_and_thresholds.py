"""What a refit does to the thresholds of a policy, on a running service."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("refits_here")
PROMISE = {
    "positive": "top",
    "bands": [{"action": "accept", "when": {"min_precision": 0.93}}, {"action": "review"}],
    "explore": {"share": 1.0, "actions": ["accept"]},
}
URL = "/v1/models/digits/policies/auto-read"


@pytest.mark.parametrize("kept", [True, False])
def test_a_threshold_stays_or_is_solved_anew(start: Any, digits: Any, kept: bool) -> None:
    service = start(policies=None)
    document = PROMISE | {"on_calibrator_change": "keep_threshold" if kept else "resolve"}
    put = service.http.put(URL, json=document)
    assert put.status_code == 201, put.text
    assert put.json()["warnings"] == [], put.json()["warnings"]
    service.activate(put.json()["id"])
    before = service.http.get(URL).json()["bands"][0]
    assert before["certificate"]["basis"] == "reference"

    service.teach(digits.dimmed[:1000], digits.labels[:1000])
    result = service.recalibrate(mode="propose", calibrator="temperature").json()
    assert result["calibrator"]["after"] != result["calibrator"]["before"]
    found = result["policies"]["auto-read"]
    claim = found["certified"]["accept"]
    assert claim["basis"] == "traffic"
    assert found["notes"] == []
    if kept:  # whether the number can be certified anew hangs on the draw of the rows; that it decides does not
        assert not found["review_all"]
        assert claim["valid"] or claim["reason"].startswith("partition_changed: ")
    service.activate(result["revision"])
    after = service.http.get(URL).json()
    assert (after["bands"][0]["threshold"] == before["threshold"]) is kept
    assert after["policy"]["on_calibrator_change"] == document["on_calibrator_change"]
    if not kept:
        return

    # The same labels again, and another calibrator: they have been shown, and cannot test what stays.
    again = service.recalibrate(mode="propose", calibrator="vector").json()
    claim = again["policies"]["auto-read"]["certified"]["accept"]
    assert claim["valid"] is False
    assert claim["reason"].startswith("partition_changed: ")
    assert not again["policies"]["auto-read"]["review_all"]
    assert again["policies"]["auto-read"]["warnings"][0].startswith("Thresholds stay: accept is not certified")
