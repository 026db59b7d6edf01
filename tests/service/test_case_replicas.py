"""Two replicas share a review queue; one is killed while it holds claims: no case is lost, and none is done twice."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import httpx
import psycopg

from tests.waiting import until

from .conftest import Digits, Process, Spawn

CASES = "/v1/models/digits/cases"
POLICY = {"positive": "top", "bands": [{"action": "review"}], "review": {}}
LEASE_S = 600


def predict(service: Process, images: Any) -> list[str]:
    """Return the ids that were acknowledged; the log was durable then."""
    with suppress(httpx.TransportError):
        answer = service.http.post("/predict", params={"policy": "all"}, json={"inputs": images.tolist()})
        assert answer.status_code == 200, answer.text
        return [row["prediction_id"] for row in answer.json()["predictions"]]
    return []


def claim(service: Process, count: int) -> list[Any]:
    answer = service.http.post(f"{CASES}/claim", json={"count": count, "lease_s": LEASE_S})
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["items"]
    return found


def label(service: Process, case: Any) -> bool:
    """Label a claimed case; return whether it was still this claim's."""
    body = {"label": "7", "lease": case["lease"]}
    answer = service.http.post(f"{CASES}/{case['id']}/label", json=body)
    assert answer.status_code in (200, 409), answer.text
    return answer.status_code == 200


def test_a_killed_replica_loses_nothing_and_nothing_is_done_twice(
    spawn: Spawn, digits: Digits, postgresql_url: str
) -> None:
    shared = {"database_url": postgresql_url, "log_mode": "sync"}
    first = spawn(**shared)
    second = spawn(**shared)
    first.activate(first.http.put("/v1/models/digits/policies/all", json=POLICY).json()["id"])
    until(lambda: second.http.get("/v1/models/digits/policies/all").status_code == 200)

    known = [id_ for part in range(4) for id_ in predict([first, second][part % 2], digits.images[part::40][:10])]
    mine, theirs = claim(first, 6), claim(second, 6)
    assert not {case["id"] for case in mine} & {case["id"] for case in theirs}
    done = [label(first, case) for case in mine[:3]] + [label(second, case) for case in theirs]
    assert all(done)
    first.kill()  # with three claims in hand
    known += predict(second, digits.images[:10])
    held = {case["id"] for case in mine[3:]}
    rest = claim(second, 100)
    done += [label(second, case) for case in rest]
    assert not held & {case["id"] for case in rest}
    with psycopg.connect(postgresql_url) as connection:  # until the claims have expired
        connection.execute("UPDATE cases SET lease_until = lease_until - 600000000")

    def finish() -> bool:
        done.extend(label(second, case) for case in claim(second, 4))
        return not second.http.get(CASES).json()["items"]

    until(finish)
    with psycopg.connect(postgresql_url) as connection:
        ends = connection.execute("SELECT id, outcome, lease FROM cases").fetchall()
        labels = Counter(target for (target,) in connection.execute("SELECT target FROM feedback"))
    assert {id_ for id_, *_ in ends} == set(known)
    assert {outcome for _, outcome, _ in ends} == {"labelled"}
    assert labels == Counter(known)
    assert sum(done) == len(known)
    again = {id_ for id_, _, lease in ends if lease > 1}
    assert held == again
