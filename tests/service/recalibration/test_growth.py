"""Certificates that grow with labels, on a running service: recalibrations read them, and no look is recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, select

from bundle import LabelledLogits
from service.state.tables import exposures

from ..conftest import Digits, InThread
from ..payments import LABELS, linear, write_payments

POLICY = {
    "positive": "fraud",
    "bands": [{"action": "block", "when": {"min_precision": 0.8}}, {"action": "review"}],
    "explore": {"share": 1.0, "actions": ["block"]},
    "certify": {"delta": 0.1, "looks": "anytime", "planned": 120},
}
URL = "/v1/models/payments/policies/triage"


def drawn(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Payments whose probability of fraud is the model's: it rises from 0.1 % to 99.9 %."""
    values = np.stack([np.zeros(n), rng.uniform(-7, 7, n)], axis=1).astype(np.float32)
    return values, (rng.random(n) < 1 / (1 + np.exp(-values[:, 1]))).astype(np.int64)


@pytest.fixture
def running(start: Callable[..., InThread], digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> InThread:
    """A service whose bundle has enough reference rows to choose thresholds, and too few to certify one."""
    root: Path = tmp_path_factory.mktemp("bundles")
    rng = np.random.default_rng(0)
    parts = []
    for n in (600, 20, 20):
        values, labels = drawn(rng, n)
        parts.append(LabelledLogits(linear(values), labels))
    values, _ = drawn(rng, 4)
    write_payments(root, digits, parts, values)
    return start(bundles=root, policies=None)


def teach(service: InThread, rng: np.random.Generator, n: int) -> None:
    values, labels = drawn(rng, n)
    answer = service.http.post("/predict", json={"inputs": values.tolist()}, params={"policy": "triage"})
    assert answer.status_code == 200, answer.text
    items = [
        {"prediction_id": one["prediction_id"], "label": LABELS[label], "source": "reviewer"}
        for one, label in zip(answer.json()["predictions"], labels, strict=True)
    ]
    assert service.runtime.log.flush()
    assert service.http.post("/feedback", json={"items": items}).status_code == 200


def looks(service: InThread) -> int:
    with service.runtime.database.connect() as connection:
        return int(connection.scalar(select(func.count()).where(exposures.c.rows == "certify")) or 0)


def activate(service: InThread, revision: str) -> None:
    epoch = service.http.get("/v1/models/payments/revisions").json()["epoch"]
    answer = service.http.post(
        f"/v1/models/payments/revisions/{revision}/activate",
        json={"reason": "it is what the test is about", "accept_change": True},
        headers={"if-match": f'"{epoch}"'},
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.usefixtures("refits_here")
def test_a_certificate_appears_and_grows_without_a_look(running: InThread) -> None:
    rng = np.random.default_rng(1)
    put = running.http.put(URL, json=POLICY)
    assert put.status_code == 201, put.text
    assert looks(running) == 1, "the first solution, on reference rows"
    activate(running, put.json()["id"])
    assert not running.http.get(URL).json()["bands"][0]["certificate"]["valid"]

    teach(running, rng, 60)
    result = running.recalibrate(mode="propose", calibrator="unchanged").json()
    claim = result["policies"]["triage"]["certified"]["block"]
    assert (claim["valid"], claim["looks"], claim["basis"]) == (False, 1, "traffic")
    assert "120 are planned" in claim["reason"], claim["reason"]
    assert "do not show a precision of at least 0.8 yet; at least " in claim["reason"], claim["reason"]
    assert str(result["policies"]["triage"]["notes"]).count("120 are planned") == 1
    assert claim["delta"] == pytest.approx(0.1 * 0.8 * 0.8)

    found = []
    for batch in (1000, 1000):  # about a third certifies, and which rows is drawn: enough for any draw
        teach(running, rng, batch)
        refused = running.recalibrate(mode="propose", calibrator="identity").json()
        assert refused["state"] == "refused", refused["summary"]
        assert refused["policies"]["triage"]["certified"]["block"]["valid"], (
            "what was read stays, whatever the gate says"
        )
        result = running.recalibrate(mode="propose", calibrator="unchanged").json()
        claim = result["policies"]["triage"]["certified"]["block"]
        assert claim["valid"], claim
        assert (claim["looks"], claim["window"][0] < claim["window"][1]) == (1, True)
        activate(running, result["revision"])
        found.append(running.http.get(URL).json()["bands"][0])
    assert found[1]["threshold"]["probability"] <= found[0]["threshold"]["probability"], (
        "it never shrinks; how much it grows hangs on the draw of roles"
    )
    assert found[1]["certificate"]["n"] >= found[0]["certificate"]["n"]

    again = running.recalibrate(mode="propose", calibrator="unchanged").json()
    assert again["policies"]["triage"]["after"]["bands"][0] == found[1], "nothing new, nothing lost"
    assert looks(running) == 1

    put = running.http.put(URL, json=POLICY | {"on_invalid": "review_all"})
    assert put.status_code == 201, put.text
    activate(running, put.json()["id"])
    assert running.http.get(URL).json()["bands"][0] == found[1], "an unrelated option keeps what was certified"
    result = running.recalibrate(mode="propose", calibrator="temperature").json()
    assert result["policies"]["triage"]["certified"]["block"]["valid"]
    assert looks(running) == 1
