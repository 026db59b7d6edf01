"""PostgreSQL that is gone for a while: predictions go on, feedback is refused, and afterwards all is well by itself."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.service.cluster import Cluster
from tests.waiting import until


def test_what_was_predicted_meanwhile_is_logged_afterwards(start: Any, digits: Any, cluster: Cluster) -> None:
    service = start(state=cluster.url, unready_after=0.5)
    service.teach(digits.dimmed[:200], digits.labels[:200])
    proposal = service.propose_policy()
    job = service.http.post("/recalibrate", json={"mode": "propose"}).headers["location"]
    label = {"items": [{"reference": "tx-1", "label": "1"}]}
    cluster.crash()
    predictions = service.predict(digits.images)
    refused = [
        service.http.post("/feedback", json=label, headers={"idempotency-key": "tx-1"}),
        service.http.post("/recalibrate"),
        service.move(f"revisions/{proposal}/activate", 1, reason="new"),
    ]
    for answer in refused:
        assert (answer.status_code, answer.json()["type"]) == (503, "/errors/state-unavailable")
        assert "Start PostgreSQL" in answer.json()["remedy"]
        assert answer.headers["retry-after"]
    ready = until(lambda: (found := service.http.get("/readyz")).status_code == 503 and found)
    assert list(ready.json()["problems"]) == ["state"]
    assert len(service.predict(digits.images[:3])) == 3

    cluster.start()
    until(lambda: service.http.get("/readyz").status_code == 200)
    answer = service.http.post("/feedback", json=label, headers={"idempotency-key": "tx-1"})
    assert answer.json()["stored"] == 1
    until(lambda: service.metric("candor_log_depth") == 0)
    assert service.metric("candor_log_dropped_total") == 0
    ended = until(lambda: (found := service.http.get(job).json())["state"] not in ("queued", "running") and found)
    assert ended["state"] == "done" or "state database" in ended["error"]["message"], ended
    assert service.activate(proposal)["active"] == proposal
    assert service.recalibrate().status_code == 200
    with psycopg.connect(cluster.url) as connection:
        stored = {id_ for (id_,) in connection.execute("SELECT id FROM predictions")}
    assert {row["prediction_id"] for row in predictions} <= stored
