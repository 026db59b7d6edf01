"""KServe's V1 protocol, as its client and its documentation write it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from bundle.images import encode_png
from service.state.keys import KeyStore
from tests.service import imported_models
from tests.waiting import until

PATH = "/v1/models/digits:predict"


def probabilities(service: Any, model: str, **body: Any) -> list[list[float]]:
    rows = service.http.post(f"/v1/models/{model}/predict", json=body).json()["predictions"]
    return [[*row["probabilities"].values()] for row in rows]


def test_a_prediction_is_a_list_of_calibrated_probabilities(shared: Any, digits: Any) -> None:
    images = digits.images[:3].tolist()
    # KServe's client sends bytes of JSON without a content type, and reads `predictions`.
    response = shared.http.post(PATH, content=httpx.Request("POST", "http://x", json={"instances": images}).content)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-candor-revision"] == "r1"
    answer = response.json()
    np.testing.assert_allclose(answer["predictions"], probabilities(shared, "digits", inputs=images), atol=1e-6)
    assert answer["labels"] == list(digits.bundle.manifest.labels)
    assert answer["decisions"] == [None] * 3
    assert shared.http.post(PATH, json={"inputs": images}).json()["predictions"] == answer["predictions"]
    of_tensorflow = {"signature_name": "serving_default", "instances": images}
    assert shared.http.post(PATH, json=of_tensorflow).json()["predictions"] == answer["predictions"]
    refused = shared.http.post(PATH, json=of_tensorflow | {"signature_name": "classify"})
    assert (refused.status_code, refused.json()["where"]) == (400, "/signature_name")


def test_policy_names_and_feedback_are_those_of_v1(service: Any, digits: Any) -> None:
    body = {"instances": digits.images[:2].tolist(), "references": ["scan-1", None], "groups": ["a", "a"]}
    answer = service.http.post(f"{PATH}?policy=auto-read&segment=DE", json=body).json()
    assert set(answer["decisions"]) <= {"accept", "review"}
    item = {"prediction_id": answer["prediction_ids"][1], "label": "7", "source": "reviewer"}
    named = {"reference": "scan-1", "label": "7", "source": "reviewer"}
    assert service.runtime.log.flush()
    receipt = service.http.post("/feedback", json={"items": [item, named]}).json()
    assert [one["status"] for one in receipt["items"]] == ["stored", "stored"]
    assert service.metric("candor_http_requests_total", route="/v1/models/{model}:predict", status="200") == 1


def test_images_are_base64_as_in_tensorflow_serving_too(shared: Any, digits: Any) -> None:
    files = [base64.b64encode(encode_png(image)).decode() for image in digits.images[:2]]
    expected = probabilities(shared, "digits", inputs=digits.images[:2].tolist())
    for instances in (files, [{"b64": file} for file in files]):
        answer = shared.http.post(PATH, json={"instances": instances}).json()
        np.testing.assert_allclose(answer["predictions"], expected, atol=1e-6)


@pytest.fixture(scope="module")
def imported(launch: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("bundles")
    imported_models.claims(root)
    imported_models.vendor(root)
    running = launch(tmp_path_factory.mktemp("state"), bundles=root, default_model="claims", policies=None)
    yield running
    running.close()


def test_rows_of_a_table_and_scores_are_instances(imported: Any) -> None:
    rows = [{"age": 41, "fault": "driver"}, {"fault": "7"}]
    answer = imported.http.post("/v1/models/claims:predict", json={"instances": rows}).json()
    np.testing.assert_allclose(answer["predictions"], probabilities(imported, "claims", inputs=rows), atol=1e-6)
    assert imported.metric("candor_absent_values_total", column="age", reason="missing") == 2
    scores = imported.http.post("/v1/models/vendor:predict", json={"instances": [0.25, 0.9]}).json()
    np.testing.assert_allclose(scores["predictions"], probabilities(imported, "vendor", scores=[0.25, 0.9]), atol=1e-6)
    both = imported.http.post("/v1/models/vendor:predict", json={"instances": [0.25], "scores": [0.9]})
    assert (both.status_code, "no other rows" in both.text) == (400, True)
    wrong = imported.http.post("/v1/models/vendor:predict", json={"instances": [0.25, "x"]})
    assert (wrong.status_code, "/instances/1" in wrong.text) == (422, True), wrong.text


@pytest.mark.parametrize(
    ("body", "query", "status", "text"),
    [
        ({}, "", 400, "/instances"),
        ({"instances": [1], "inputs": [1]}, "", 400, "/instances"),
        ({"instances": []}, "", 422, "at least 1"),
        ({"instances": [[1]]}, "", 422, "/instances/0"),
        ({"instances": [[[0.5] * 8] * 8]}, "", 422, "uint8"),
        ({"instances": [{"b64": "!"}]}, "", 422, "not base64"),
        ({"instances": [{"data": "x"}]}, "", 422, "/instances"),
        ({"instances": [[[0] * 8] * 8], "polcy": "auto-read"}, "", 400, "/polcy"),
        ({"instances": [[[0] * 8] * 8]}, "?polcy=auto-read", 422, "?polcy"),
        ({"instances": [[[0] * 8] * 8]}, "?policy=none", 404, "no policy"),
        ({"instances": [[[0] * 8] * 8], "segments": ["a"]}, "?segment=b", 422, "given twice"),
    ],
)
def test_what_cannot_be_used_is_refused_at_its_place(
    shared: Any, body: dict[str, Any], query: str, status: int, text: str
) -> None:
    response = shared.http.post(f"{PATH}{query}", json=body)
    assert response.status_code == status, response.text
    assert text in response.text


def test_a_model_is_ready_or_503(start: Any) -> None:
    service = start()
    assert service.http.get("/v1/models/digits").json() == {"name": "digits", "ready": True}
    assert service.http.get("/v1/models/letters").status_code == 404
    assert service.http.get("/v1/models/letters:predict").status_code == 405
    service.http.post("/v1/models/digits/unload")
    assert service.http.get("/v1/models/digits").status_code == 503
    assert service.http.post(PATH, json={"instances": [[[0] * 8] * 8]}).status_code == 503


def test_predicting_requires_its_scope(service: Any, digits: Any) -> None:
    keys = KeyStore(service.runtime.database)
    made = [keys.create(scope, [scope])[1] for scope in ("predict", "feedback")]
    body = {"instances": digits.images[:1].tolist()}
    assert until(lambda: service.http.post(PATH, json=body).status_code == 401)  # the first key has been noticed
    asked = [service.http.post(PATH, json=body, headers={"authorization": f"Bearer {key}"}) for key in made]
    assert [response.status_code for response in asked] == [200, 403]


def test_an_unknown_field_is_named_beside_those_of_the_protocol(shared: Any, digits: Any) -> None:
    body = {"instances": digits.images[:1].tolist(), "context": "x"}
    document = shared.http.post(PATH, json=body).json()
    assert (document["status"], document["where"]) == (400, "/context")
    assert document["found"] == ["context", "instances"]
    assert document["expected"][0] == "instances"
