"""Prediction sets through a running service: the same in every protocol, and solved anew by a recalibration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from candor import Client
from service.bulk import Options, score
from service.settings import Settings
from service.state.database import now_us
from service.times import iso
from tests.ports import free_port

from .conftest import Channel

SET = {"coverage": 0.9, "per_class": False, "score": "aps"}
DOCUMENT = {"id": "default", "bands": [{"action": "show"}], "set": SET, "explore": {"share": 1, "actions": ["show"]}}
BODY = {"name": "input", "shape": [50, 8, 8, 1], "datatype": "UINT8"}


@pytest.fixture(scope="module")
def service(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = launch(tmp_path_factory.mktemp("sets"), policies=None, grpc_port=free_port())
    put = running.http.put("/v1/models/digits/policies/default", json=DOCUMENT)
    assert put.status_code == 201, put.text
    running.activate(put.json()["id"])
    yield running
    running.close()


def test_every_protocol_has_the_same_sets(service: Any, digits: Any, tmp_path: Path) -> None:
    before = {size: service.metric("candor_prediction_sets_total", size=size) for size in ("one", "several")}
    images = digits.images[:50]
    answer = service.http.post("/predict", json={"inputs": images.tolist()}).json()
    names = list(answer["predictions"][0]["probabilities"])
    sets = [one["decision"]["set"] for one in answer["predictions"]]
    certificate = answer["policy"]["sets"][""]
    assert (certificate["coverage"], certificate["basis"], certificate["valid"]) == (0.9, "reference", True)
    assert "thresholds" not in certificate
    mask = [[name in found for name in names] for found in sets]
    limits = service.http.get(f"/v1/models/digits/revisions/{answer['revision']}").json()["policies"]["default"]["sets"]
    for one, found in zip(answer["predictions"], sets, strict=True):  # by hand
        ordered = sorted(one["probabilities"].items(), key=lambda item: -item[1])
        total, expected = 0.0, []
        for name, probability in ordered:
            total += probability
            if total <= limits[""]["thresholds"][0]:
                expected.append(name)
        assert sorted(found) == sorted(expected)
    sizes = [len(found) for found in sets]
    assert service.metric("candor_prediction_sets_total", size="one") - before["one"] == sizes.count(1)
    assert service.metric("candor_prediction_sets_total", size="several") - before["several"] == sum(
        2 <= size < 10 for size in sizes
    )

    inputs = [BODY | {"data": images.ravel().tolist()}]
    wanted = [{"name": "set", "parameters": {"binary_data": False}}, {"name": "decision"}]
    found = service.http.post("/v2/models/digits/infer", json={"inputs": inputs, "outputs": wanted}).json()
    assert found["outputs"][0] == {
        "name": "set",
        "datatype": "BOOL",
        "shape": [50, 10],
        "data": np.ravel(mask).tolist(),
    }
    default = service.http.post("/v2/models/digits/infer", json={"inputs": inputs}).json()
    assert [one["name"] for one in default["outputs"]] == ["logits", "probabilities", "confidence", "decision"]
    declared = service.http.get("/v2/models/digits").json()["outputs"][-1]
    assert declared == {"name": "set", "datatype": "BOOL", "shape": [-1, 10]}
    configured = service.http.get("/v2/models/digits/config").json()["output"][-1]
    assert configured == {"name": "set", "data_type": "TYPE_BOOL", "dims": [10]}

    channel = Channel(service)
    assert channel("ModelConfig", name="digits").config.output[-1].name == "set"
    for raw in (True, False):
        contents: dict[str, Any] = {"raw_input_contents": [images.tobytes()]}
        tensor: dict[str, Any] = dict(BODY)
        if not raw:
            contents, tensor = {}, BODY | {"contents": {"uint_contents": images.ravel().tolist()}}
        reply = channel("ModelInfer", model_name="digits", inputs=[tensor], outputs=[{"name": "set"}], **contents)
        values = (
            np.frombuffer(reply.raw_output_contents[0], np.bool_)
            if raw
            else np.array(reply.outputs[0].contents.bool_contents)
        )
        assert values.reshape(50, 10).tolist() == mask
    channel.channel.close()

    (tmp_path / "policies" / "digits").mkdir(parents=True)
    (tmp_path / "policies" / "digits" / "default.yaml").write_text(json.dumps(DOCUMENT))
    np.savez(tmp_path / "rows.npz", inputs=images, row=np.arange(50))
    settings = Settings(bundles=service.runtime.settings.bundles, policies=tmp_path / "policies")
    done = score(tmp_path / "rows.npz", tmp_path / "out", Options(format="ndjson", processes=1), settings=settings)
    assert done.rows == 50
    lines = [json.loads(line) for part in (tmp_path / "out").glob("*.ndjson") for line in part.read_text().splitlines()]
    assert [json.loads(line["set"]) for line in lines] == sets


def test_a_client_reads_the_sets(service: Any, digits: Any) -> None:
    with Client(service.url) as client:
        found = client.predict(digits.images[:3])
    assert found.policy is not None
    assert found.policy.sets[""].n > 100
    assert all(one.decision is not None and one.decision.set is not None for one in found.predictions)


def test_a_policy_without_sets_has_none(shared: Any, digits: Any) -> None:
    answer = shared.http.post("/predict?policy=auto-read", json={"inputs": digits.images[:1].tolist()}).json()
    assert "sets" not in answer["policy"]
    assert "set" not in answer["predictions"][0]["decision"]
    inputs = [BODY | {"shape": [1, 8, 8, 1], "data": digits.images[:1].ravel().tolist()}]
    refused = shared.http.post("/v2/models/digits/infer", json={"inputs": inputs, "outputs": [{"name": "set"}]})
    assert refused.status_code == 422, refused.text
    assert "No prediction sets" in refused.json()["error"]


@pytest.mark.usefixtures("refits_here")
def test_a_recalibration_solves_them_on_traffic(service: Any, digits: Any) -> None:
    since = iso(now_us())  # the other tests' predictions have no labels
    items = [
        {"prediction_id": one["prediction_id"], "label": label}
        for one, label in zip(service.predict(digits.dimmed[: len(digits.labels)]), digits.labels, strict=True)
    ]
    assert service.http.post("/feedback", json={"items": items}).status_code == 200
    assert service.runtime.log.flush()
    found = service.recalibrate(mode="dry_run", source={"feedback": {"since": since}}).json()["policies"]["default"]
    assert found["sets"][""]["reason"] is None
    assert found["sets"][""]["basis"] == "traffic"
    assert found["after"]["sets"][""]["thresholds"] != found["before"]["sets"][""]["thresholds"]
    assert found["sets"][""]["valid"]
