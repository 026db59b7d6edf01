"""Silence as a label, through a running service."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from service.state.tables import predictions

pytestmark = pytest.mark.usefixtures("refits_here")
MEANT = {"label": "1", "source": "complaints", "maturity_days": 30, "actions": ["review"]}


def grow_old(service: Any, days: int) -> None:
    """Let all predictions have been made so many days earlier."""
    with service.runtime.database.begin() as connection:
        older = predictions.c.created_at - days * 86_400_000_000
        connection.execute(update(predictions).values(created_at=older))


def test_what_nobody_complained_of_enters_a_fit_when_it_is_old_enough(on_both: Any, digits: Any) -> None:
    service = on_both
    service.teach(digits.dimmed[:900], digits.labels[:900])
    service.predict(digits.images[900:1300], policy="auto-read")
    assert service.runtime.log.flush()
    source = {"feedback": {"implicit_negative": MEANT}}
    young = service.recalibrate(source=source).json()
    assert young["rows"]["implicit"] == 0
    grow_old(service, days=31)
    old = service.recalibrate(source=source).json()
    assert old["rows"]["implicit"] > 20, "about a quarter of those that were allowed: ids are random"
    assert old["rows"]["fit"] == young["rows"]["fit"] + old["rows"]["implicit"]
    assert {part: old["rows"][part] for part in ("certify", "gate")} == {
        part: young["rows"][part] for part in ("certify", "gate")
    }
    assert old["implicit_negative"] == MEANT
    assert old["source"] == {"feedback": {}}
    windowed = service.recalibrate(source={"feedback": {"since": "2020-01-01T00:00:00Z"}}).json()
    assert windowed["source"] == {"feedback": {"since": "2020-01-01T00:00:00.000000Z"}}
    assert service.recalibrate().json()["rows"]["implicit"] == 0


def test_what_cannot_be_meant_is_refused(shared: Any) -> None:
    def refused(**feedback: Any) -> dict[str, Any]:
        response = shared.recalibrate(source={"feedback": feedback})
        assert response.status_code == 422, response.text
        return response.json()

    unknown = refused(implicit_negative=MEANT | {"label": "eleven"})
    assert (unknown["where"], unknown["found"]) == ("/source/feedback/implicit_negative/label", "eleven")
    nowhere = refused(implicit_negative=MEANT | {"actions": ["review", "reviewed"]})
    assert (nowhere["where"], nowhere["found"]) == ("/source/feedback/implicit_negative/actions", "reviewed")
    assert "review" in nowhere["expected"]
    both = refused(implicit_negative=MEANT, unknown_propensity="fit")
    assert both["where"] == "/source/feedback/unknown_propensity"
    for change in ({"maturity_days": 0}, {"maturity_days": 1e9}, {"actions": []}, {"source": ""}):
        assert "implicit_negative" in refused(implicit_negative=MEANT | change)["where"]


def test_a_policy_says_that_labels_arise_by_themselves(service: Any, digits: Any) -> None:
    """Nothing counts before its age; then silence is the label, which certifies and gates too."""
    document = {
        "positive": "7",
        "bands": [{"action": "block", "when": {"min_probability": 0.5}}, {"action": "allow"}],
        "labels": {"mature_in": "60d", "silence": "1"},
    }
    put = service.http.put("/v1/models/digits/policies/sevens", json=document)
    assert put.status_code == 201, put.text
    service.activate(put.json()["id"])
    answers = service.predict(digits.dimmed[:900], policy="sevens")
    assert all(one["decision"]["label_sought"] for one in answers)
    items = [
        {"prediction_id": one["prediction_id"], "label": label, "source": "chargeback"}
        for one, label in zip(answers, digits.labels, strict=False)
        if label != "1"
    ]
    assert service.http.post("/feedback", json={"items": items}).status_code == 200
    assert service.runtime.log.flush()
    young = service.recalibrate()
    assert young.status_code == 422, young.text
    assert "Too few usable labelled rows" in young.text
    grow_old(service, days=61)
    rows = service.recalibrate().json()["rows"]
    assert rows["fit"] + rows["certify"] + rows["gate"] == 900
    assert rows["implicit"] == 0


def test_a_silence_that_is_no_label_of_the_model_is_refused(shared: Any) -> None:
    document = {"bands": [{"action": "allow"}], "labels": {"mature_in": "60d", "silence": "eleven"}}
    refused = shared.http.put("/v1/models/digits/policies/quiet", json=document)
    assert (refused.status_code, refused.json()["where"]) == (422, "/labels/silence")
