"""Segments over HTTP: thresholds and certificates of their own, from the request to the refit and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from candor import Client
from service.state.tables import predictions
from tests.array_files import npy

pytestmark = pytest.mark.usefixtures("refits_here")
POLICY = {
    "positive": "top",
    "bands": [{"action": "accept", "when": {"min_precision": 0.8}}, {"action": "check"}],
    "explore": {"share": 1.0, "actions": ["accept", "check"]},
    "segments": {"values": ["bright", "dim", "dark"], "fallback": "check"},
}
URL = "/v1/models/digits/policies/by-lamp"
ROWS = 900


def put_in_force(service: Any) -> dict[str, Any]:
    response = service.http.put(URL, json=POLICY)
    assert response.status_code == 201, response.text
    service.activate(response.json()["id"])
    return response.json()


def ask(service: Any, images: Any, segments: Any, policy: str = "by-lamp") -> dict[str, Any]:
    body = {"inputs": images.tolist(), "segments": segments}
    response = service.http.post(f"/predict?policy={policy}&top=0", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def teach(service: Any, images: Any, labels: list[str], segment: str | None, *, errors: bool = False) -> None:
    """Predict and label images; with `errors`, half of those in the less confident half are said to be something else.

    So that not all of them can be accepted, however the rows are split.
    """
    for start in range(0, len(images), 300):
        part = slice(start, start + 300)
        found = ask(service, images[part], [segment] * len(images[part]))["predictions"]
        median = np.median([row["confidence"] for row in found])
        wrong = [errors and row["confidence"] < median and index % 2 == 0 for index, row in enumerate(found)]
        items = [
            {"prediction_id": row["prediction_id"], "label": str((int(label) + 1) % 10) if spoilt else label}
            for row, label, spoilt in zip(found, labels[part], wrong, strict=True)
        ]
        assert service.http.post("/feedback", json={"items": items}).status_code == 200
    assert service.runtime.log.flush()


def test_segments_are_certified_from_their_own_traffic(on_both: Any, digits: Any) -> None:
    service = on_both
    proposal = put_in_force(service)
    assert [warning.split(":")[0] for warning in proposal["warnings"]] == [
        f"Every row of segment {value!r} gets 'check'" for value in POLICY["segments"]["values"]
    ]
    for warning in proposal["warnings"]:
        assert "no reference rows of this segment; at least" in warning
        assert "labelled rows at or above the threshold are needed" in warning

    before = ask(service, digits.images[:4], ["bright", "dim", "west", None])
    assert [row["decision"] for row in before["predictions"]] == [
        {"action": "check", "label_sought": True, "segment": segment} for segment in ("bright", "dim", None, None)
    ]
    assert (before["policy"]["certified"], before["policy"]["fallback"]) == ({}, "check")
    assert set(before["policy"]["segments"]) == {"bright", "dim"}
    for segment, found in before["policy"]["segments"].items():
        assert found["uses_fallback"]
        assert found["certified"]["accept"]["segment"] == segment
        assert found["certified"]["accept"]["needed"] > 0

    teach(service, digits.images[:ROWS], digits.labels[:ROWS], "bright")
    teach(service, digits.dimmed[:ROWS], digits.labels[:ROWS], "dim", errors=True)
    result = service.recalibrate(mode="propose", calibrator="temperature").json()
    solved = result["policies"]["by-lamp"]
    assert (solved["review_all"], solved["certified"]) == (False, {})
    shown = {value: part["certified"]["accept"] for value, part in solved["segments"].items()}
    assert [(value, certificate["valid"]) for value, certificate in shown.items()] == [
        ("bright", True),
        ("dim", True),
        ("dark", False),
    ]
    assert "the traffic rows contain no fit rows" in shown["dark"]["reason"]
    for value in ("bright", "dim"):
        assert (shown[value]["basis"], shown[value]["segment"]) == ("traffic", value)
        assert shown[value]["n"] < ROWS / 2  # its own rows only
    assert result["decisions"]["policies"]["by-lamp"]["flipped"] > 0

    service.activate(result["revision"])
    bands = service.http.get(URL).json()["segments"]
    cuts = {value: bands[value]["bands"][0]["threshold"]["probability"] for value in ("bright", "dim")}
    assert cuts["bright"] < cuts["dim"], f"the one with more errors takes the stricter: {cuts}, {shown}"

    images = np.concatenate([digits.dimmed[:100]] * 5)
    segments = [value for value in ("bright", "dim", "dark", "west", None) for _ in range(100)]
    after = ask(service, images, segments)
    actions = np.array([row["decision"]["action"] for row in after["predictions"]]).reshape(5, 100)
    confidence = np.array([row["confidence"] for row in after["predictions"]], dtype=np.float32).reshape(5, 100)
    for row, value in enumerate(("bright", "dim")):
        assert ((actions[row] == "accept") == (confidence[row] >= np.float32(cuts[value]))).all()
    assert (actions[0] == "accept").sum() > (actions[1] == "accept").sum()
    assert (actions[2:] == "check").all()
    assert not after["policy"]["segments"]["bright"]["uses_fallback"]
    assert after["policy"]["segments"]["dark"]["uses_fallback"]
    assert "west" not in after["policy"]["segments"]

    assert service.runtime.log.flush()
    tried = service.http.post(f"{URL}/simulate", json={"rows": 500}).json()
    assert (tried["decisions"]["flipped"], tried["actions"]["accept"]["after"]) == (0, int((actions == "accept").sum()))
    assert set(tried["segments"]) == {"bright", "dim", "dark"}
    assert len(tried["warnings"]) == 1

    # Labels for the third come: the policy is solved anew, and no probability changes.
    items = [
        {"prediction_id": row["prediction_id"], "label": label}
        for row, label in zip(after["predictions"], digits.labels[:100] * 5, strict=True)
    ]
    assert service.http.post("/feedback", json={"items": items}).status_code == 200
    attempts = result["gate"]["attempt"]
    teach(service, digits.images[:ROWS] // 3, digits.labels[:ROWS], "dark")
    anew = service.recalibrate(mode="propose", calibrator="unchanged").json()
    assert anew["calibrator"]["before"] == anew["calibrator"]["after"]
    assert (anew["state"], anew["gate"]["passed"], anew["gate"]["unattended"]) == ("proposed", True, False)
    dark = anew["policies"]["by-lamp"]["segments"]["dark"]
    assert not dark["uses_fallback"], dark
    shown = ask(service, digits.images[:9], ["dark"] * 9)["predictions"]
    epoch = service.revisions()["epoch"]
    accepted = {"accept_change": True, "reason": "dark rows are decided"}
    assert service.move(f"revisions/{anew['revision']}/activate", epoch, **accepted).status_code == 200
    now = ask(service, digits.images[:9], ["dark"] * 9)["predictions"]
    assert [row["confidence"] for row in now] == [row["confidence"] for row in shown]
    assert {row["decision"]["action"] for row in shown} == {"check"}
    assert "accept" in {row["decision"]["action"] for row in now}
    assert service.recalibrate(mode="dry_run").json()["gate"]["attempt"] == attempts + 1


def test_a_policy_with_segments_costs_no_look_at_the_reference_rows(service: Any) -> None:
    before = service.looks()
    put_in_force(service)
    assert service.looks() == before


def test_what_must_be_certified_or_refused_is_refused_with_the_segment(shared: Any) -> None:
    response = shared.http.put(URL, json=POLICY | {"on_uncertifiable": "fail"})
    assert response.status_code == 422
    problem = response.json()
    assert problem["where"] == "/bands/0/when/min_precision"
    assert "for segment 'bright'" in problem["detail"]


def test_every_way_to_name_a_segment_is_logged(service: Any, digits: Any) -> None:
    put_in_force(service)
    image = digits.images[:2]
    rows = image.tolist()
    tensor = {"name": "input", "shape": [2, 8, 8, 1], "datatype": "UINT8", "data": image.reshape(-1).tolist()}
    requests = [
        ("/predict?policy=by-lamp", {"json": {"inputs": rows, "segments": ["bright", None]}}, ["bright", None]),
        ("/predict?segment=bright&policy=by-lamp", {"json": {"inputs": rows}}, ["bright"] * 2),
        (
            "/predict?segment=d%C3%A4mmrig&policy=by-lamp",
            {"content": npy(image), "headers": {"content-type": "application/x-npy"}},
            ["dämmrig"] * 2,
        ),
        ("/predict?segment=dim", {"content": npy(image[0]), "headers": {"content-type": "application/x-npy"}}, ["dim"]),
        ("/predict", {"json": {"inputs": rows, "segments": [None, "dim"]}}, [None, "dim"]),
        ("/predict?policy=auto-read", {"json": {"inputs": rows}}, [None] * 2),
        (
            "/v2/models/digits/infer",
            {"json": {"inputs": [tensor], "parameters": {"segment": "dim", "policy": "by-lamp"}}},
            ["dim"] * 2,
        ),
        ("/v2/models/digits/infer?segment=dark", {"json": {"inputs": [tensor]}}, ["dark"] * 2),
    ]
    for path, content, expected in requests:
        response = service.http.post(path, **content)
        assert response.status_code == 200, response.text
        document = response.json()
        ids = (
            document["parameters"]["prediction_ids"].split(",")
            if "parameters" in document
            else [row["prediction_id"] for row in document["predictions"]]
        )
        assert service.runtime.log.flush()
        with service.runtime.database.connect() as connection:
            found = dict(map(tuple, connection.execute(select(predictions.c.id, predictions.c.segment))))
        assert [found[id_] for id_ in ids] == expected


def test_the_client_names_segments_and_reads_them_back(service: Any, digits: Any) -> None:
    put_in_force(service)
    seven = Path(__file__).parents[2] / "examples" / "seven.png"
    with Client(service.url) as client:
        answers = [
            client.predict(digits.images[:2], policy="by-lamp", segments=["bright", "dim"]),
            client.predict(digits.images[:2], policy="by-lamp", segments="bright"),
            client.predict_images([seven, seven], policy="by-lamp", segments=["bright", "dim"]),
            client.predict_images([seven, seven], policy="by-lamp", segments="bright"),
            client.predict_file(seven, policy="by-lamp", segment="bright"),
        ]
        tried = client.simulate("by-lamp", rows=5)
        assert [tried.segments[value].uses_fallback for value in POLICY["segments"]["values"]] == [True] * 3
        assert "bright" in client.put_policy("by-lamp", {**POLICY, "certify": {"delta": 0.1}}).warnings[0]
    for answer in answers:
        segments = [prediction.decision.segment for prediction in answer.predictions if prediction.decision]
        assert segments in (["bright", "dim"], ["bright", "bright"], ["bright"])
        assert answer.policy is not None
        assert (answer.policy.fallback, set(answer.policy.segments)) == ("check", set(segments))
        bright = answer.policy.segments["bright"]
        assert bright.uses_fallback
        assert bright.certified["accept"].segment == "bright"


def test_the_command_line_says_which_segment_a_certificate_is_of(service: Any, spawn: Any, digits: Any) -> None:
    put_in_force(service)
    seven = Path(__file__).parents[2] / "examples" / "seven.png"
    shown = spawn.run("predict", seven, "--policy", "by-lamp", "--segment", "bright", url=service.url)
    assert shown.returncode == 0, shown.stderr
    assert "any other segment: check" in shown.stdout
    assert "bright, accept: not certified: the bundle has no reference rows of this segment" in shown.stdout
    teach(service, digits.images[:ROWS], digits.labels[:ROWS], "bright")
    refitted = spawn.run("recalibrate", "--calibrator", "unchanged", url=service.url)
    assert refitted.returncode == 0, refitted.stdout + refitted.stderr
    lines = refitted.stdout.splitlines()
    assert "The calibrator is unchanged" in lines[0]
    assert any(
        "certified " in line and "by-lamp: segment bright, accept, precision of at least 80%" in line for line in lines
    )
    assert any("not certified" in line and "segment dim" in line for line in lines)
    assert any("it sends every row of dim to the fallback" in line for line in lines)


def test_an_answer_without_segments_is_what_it_was(shared: Any, digits: Any) -> None:
    body = {"inputs": digits.images[:1].tolist()}
    plain = shared.http.post("/predict?policy=auto-read", json=body).json()
    named = shared.http.post("/predict?policy=auto-read&segment=DE", json=body).json()
    assert plain["policy"] == named["policy"]
    assert set(plain["policy"]) == {"id", "certified"}
    assert plain["predictions"][0]["decision"] == named["predictions"][0]["decision"]


@pytest.mark.parametrize(
    ("query", "segments", "kind", "where"),
    [
        ("", ["a", "b"], "input-shape", "/segments"),
        ("", [], "input-shape", "/segments"),
        ("", "DE", "input-type", "/segments"),
        ("", [7], "input-type", "/segments"),
        ("", [""], "input-value", "/segments/0"),
        ("", ["s" * 201], "input-value", "/segments/0"),
        ("?segment=DE", ["DE"], "input-value", "/segments"),
        ("?segment=", None, "input-value", "?segment"),
        ("?segment=a%00b", None, "input-value", "?segment"),
        (f"?segment={'s' * 201}", None, "input-value", "?segment"),
        ("?segments=DE", None, "input-value", "?segments"),
    ],
)
def test_what_is_refused(shared: Any, digits: Any, query: str, segments: Any, kind: str, where: str) -> None:
    body = {"inputs": digits.images[:1].tolist()} | ({} if segments is None else {"segments": segments})
    response = shared.http.post(f"/predict{query}", json=body)
    assert response.status_code == 422, response.text
    assert (response.json()["type"], response.json()["where"]) == (f"/errors/{kind}", where)


@pytest.mark.parametrize("parameters", [{"segment": 7}, {"segment": ""}, {"segment": "s" * 201}])
def test_what_is_refused_on_v2(shared: Any, digits: Any, parameters: dict[str, Any]) -> None:
    tensor = {"name": "input", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": digits.images[0].ravel().tolist()}
    response = shared.http.post("/v2/models/digits/infer", json={"inputs": [tensor], "parameters": parameters})
    assert response.status_code == 422
    assert "/parameters/segment" in response.json()["error"]
    twice = shared.http.post(
        "/v2/models/digits/infer?segment=a", json={"inputs": [tensor], "parameters": {"segment": "a"}}
    )
    assert "given twice" in twice.json()["error"]
