"""A clock that jumps an hour forward and an hour back: nothing is lost, counted as fresh twice, or stuck."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from service.state.database import Database, now_us
from service.state.feedback import FeedbackItem, FeedbackStore
from service.state.keys import KeyStore
from service.state.looks import record_look
from service.state.revisions import RevisionStore
from tests.waiting import until

HOUR_S = 3600


class Clock:
    """The time of day, set forward or back; what runs on in seconds does not move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0
        time_s, time_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: time_s() + self.ahead_s)
        monkeypatch.setattr(time, "time_ns", lambda: time_ns() + self.ahead_s * 1_000_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_rows_labels_and_looks(start: Any, digits: Any, clock: Clock) -> None:
    service = start(retention_days=1.0)
    ids: list[str] = []
    attempts = []
    for number, clock.ahead_s in enumerate((0, HOUR_S, -HOUR_S, 0)):
        rows = slice(150 * number, 150 * (number + 1))
        predictions = service.predict(digits.dimmed[rows], policy="auto-read")
        ids += [row["prediction_id"] for row in predictions]
        assert service.runtime.log.flush()
        for label in ("0", None):  # the second time each is corrected
            items = [
                {"prediction_id": row["prediction_id"], "label": label or right, "source": "reviewer"}
                for row, right in zip(predictions, digits.labels[rows], strict=True)
            ]
            receipt = service.http.post("/feedback", json={"items": items}).json()
            assert receipt["pending"] == 0
        response = service.recalibrate(mode="dry_run")
        assert response.status_code == 200, response.text
        attempts.append(response.json()["gate"]["attempt"])
        assert service.http.get("/readyz").json()["stale_for_s"] < 30
    assert len(set(ids)) == len(ids) == 600
    assert attempts == [1, 2, 3, 4]
    assert service.metric("candor_pruned_rows_total") == 0
    assert service.metric("candor_log_dropped_total") == 0


def test_keys_expire_by_the_clock_of_the_day(start: Any, clock: Clock) -> None:
    service = start()
    keys = KeyStore(service.runtime.database)
    _, lasting = keys.create("boss", ["admin"])
    _, brief = keys.create("temp", ["predict"], expires_at=time.time_ns() // 1000 + HOUR_S * 500_000)

    def status(secret: str) -> int:
        return int(service.http.get("/v1/models", headers={"authorization": f"Bearer {secret}"}).status_code)

    until(lambda: service.http.get("/v1/models").status_code == 401)  # the service has heard of the keys
    seen = []
    for clock.ahead_s in (0, HOUR_S, -HOUR_S):
        seen.append((status(lasting), status(brief)))
    assert seen == [(200, 200), (200, 401), (200, 200)]


def test_labels_of_a_clock_that_ran_ahead_are_not_fresh_twice(tmp_path: Path, clock: Clock) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/state.db")
    now = now_us()
    clock.ahead_s = HOUR_S
    FeedbackStore(database).add("pets", [FeedbackItem(None, "tx-1", "cat")], by="till")
    clock.ahead_s = 0
    earliest = now + HOUR_S * 1_000_000
    store = RevisionStore(database)
    looks = [
        record_look(store._database, "pets", "d1", "gate", "traffic", "", earliest_row_us=earliest, at=now_us()).number
        for _ in range(2)
    ]
    database.close()
    assert looks == [1, 2]


def test_a_clock_that_ran_wild_once_is_not_followed(tmp_path: Path, clock: Clock) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/state.db")
    clock.ahead_s = 365 * 24 * HOUR_S
    FeedbackStore(database).add("pets", [FeedbackItem(None, "tx-1", "cat")], by="till")
    clock.ahead_s = 0
    store = RevisionStore(database)
    now = now_us()
    looks = [
        record_look(
            store._database, "pets", "d1", "gate", "traffic", "", earliest_row_us=now + after, at=now + after
        ).number
        for after in (0, 1_000_000)  # the second look is at newer rows only
    ]
    database.close()
    assert looks == [1, 1]
