"""Keys of a real service reach their daily quotas, over HTTP and in the dashboard."""

from __future__ import annotations

from collections.abc import Callable

from service.state.keys import KeyStore
from tests.service.conftest import Caller, InThread

from .dashboard.test_pages import login


def test_a_key_has_daily_quotas_of_labels_and_of_changes(start: Callable[..., InThread]) -> None:
    running = start(key_labels_per_day=2, key_changes_per_day=2)
    keys = KeyStore(running.runtime.database)
    till, ops = (
        Caller(running.url, authorization=f"Bearer {keys.create(name, ['feedback', 'calibrate'])[1]}")
        for name in ("till", "ops")
    )
    running.application._access.refresh()

    def label(by: Caller, *references: str) -> int:
        items = [{"reference": name, "label": "7"} for name in references]
        return by.http.post("/feedback", json={"items": items}).status_code

    assert [label(till, "a", "b"), label(till, "c"), label(ops, "c")] == [200, 429, 200]
    till.propose_policy("first", 0.4)
    till.propose_policy("first", 0.5)
    refused = till.http.put("/v1/models/digits/policies/first", json={})
    assert (refused.status_code, refused.json()["type"]) == (429, "/errors/rate-limited")
    assert refused.json()["remedy"] == "Wait until tomorrow, or raise CANDOR_KEY_CHANGES_PER_DAY."
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert till.http.get("/v1/models/digits/revisions").status_code == 200, "reading goes on"
    ops.propose_policy("second", 0.4)
    for by in (till, ops):
        by.close()


def test_logins_count_as_changes(start: Callable[..., InThread]) -> None:
    running = start(key_changes_per_day=2)
    _, key = KeyStore(running.runtime.database).create("guest", ["predict"])
    running.application._access.refresh()
    assert [login(running, key).status_code for _ in range(3)] == [303, 303, 429]
