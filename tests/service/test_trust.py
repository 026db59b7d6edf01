"""What keys of narrow scopes cannot learn or move: what docs/how-to/security.md says and no other file tests."""

from __future__ import annotations

from typing import Any

import pytest

from service.state.keys import KeyStore
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("refits_here")
ROWS = 600


@pytest.fixture
def keys(service: Any) -> dict[str, dict[str, str]]:
    """Headers of an administrator, of a client that predicts and labels, and of one that predicts."""
    store = KeyStore(service.runtime.database)
    scopes = {"ops": ["admin"], "till": ["predict", "feedback"], "guest": ["predict"]}
    made = {name: {"authorization": f"Bearer {store.create(name, wanted)[1]}"} for name, wanted in scopes.items()}
    until(lambda: service.http.get("/v1/models").status_code == 401)  # until the first key has been noticed
    return made


def test_no_answer_shows_what_another_client_has_sent(service: Any, digits: Any, keys: dict[str, Any]) -> None:
    service.http.headers.update(keys["till"])
    body = {
        "inputs": digits.images[:3].tolist(),
        "references": [f"secret-reference-{row}" for row in range(3)],
        "groups": [f"secret-group-{row}" for row in range(3)],
    }
    answer = service.http.post("/predict", params={"policy": "auto-read"}, json=body).json()
    sent = ["secret-reference", "secret-group", *(row["prediction_id"] for row in answer["predictions"])]
    items = [{"reference": name, "label": "7", "source": "reviewer"} for name in body["references"]]
    assert service.http.post("/feedback", json={"items": items}).json()["stored"] == 3
    names = {
        "model": "digits",
        "revision": "r1",
        "policy": "auto-read",
        "job": "j1",
        "labelled_set": "ls1",
        "version": "1",
    }
    read = 0
    for path, methods in service.http.get("/openapi.json").json()["paths"].items():
        if "get" in methods:
            shown = service.http.get(path.format(**names), headers=keys["guest"])
            assert shown.status_code in (200, 403, 404, 503), shown.text
            assert not [text for text in sent if text in shown.text], path
            read += shown.status_code == 200
    assert read > 10


def test_a_key_that_lies_about_everything_moves_nothing(service: Any, digits: Any, keys: dict[str, Any]) -> None:
    service.http.headers.update(keys["till"])
    shown = digits.images[:1]
    before = service.predict(shown, policy="auto-read")[0]
    lies = [str((int(label) + 1) % 10) for label in digits.labels[:ROWS]]
    assert service.teach(digits.images[:ROWS], lies)["stored"] == ROWS
    now = service.predict(shown, policy="auto-read")[0]
    assert (now["probabilities"], now["decision"]) == (before["probabilities"], before["decision"])
    assert service.recalibrate(mode="activate").status_code == 403

    service.http.headers.update(keys["ops"])
    refit = service.recalibrate(mode="activate")
    assert refit.status_code == 200, refit.text
    found = refit.json()
    assert found["gate"]["unattended"] is False
    assert found["gate"]["unattended_reason"]
    assert service.revisions()["active"] == "r1"
    assert found["gate"]["passed"]  # on what was said, saying nothing is better: a person may follow that, and then
    assert service.activate(found["revision"])["active"] == found["revision"]
    assert service.predict(shown, policy="auto-read")[0]["decision"]["action"] == "review"
